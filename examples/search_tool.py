"""A tool of your own: search over a few documents, as examples/own-tool.yaml offers it."""

import math
import re

DOCUMENTS = {
    "North lighthouse": "The north lighthouse was built in 1871. It is 30 m high. Ida Berg was its first keeper.",
    "South lighthouse": "The south lighthouse was built in 1904, after the storm of that year.",
    "Harbour": "The harbour has 12 berths. The north lighthouse stands at its end.",
    "Ida Berg": "Ida Berg was born in Bergen. She kept the lighthouse for 30 years.",
}
N_RESULTS = 2


def words(text):
    return set(re.findall(r"\w+", text.lower()))


WORDS = {title: words(f"{title} {text}") for title, text in DOCUMENTS.items()}


def search(query: str) -> str:
    """Search the documents on the harbour; gives the two that fit best.

    Args:
        query: Words to look for
    """

    def score(title):
        """Count the words of the query that the document has; rare ones count more."""
        shared = sorted(words(query) & WORDS[title])
        return sum(math.log(1 + len(WORDS) / sum(word in other for other in WORDS.values())) for word in shared)

    best = [title for title in sorted(WORDS, key=score, reverse=True) if score(title)][:N_RESULTS]
    results = [f"[{number}] {title}\n{DOCUMENTS[title]}" for number, title in enumerate(best, 1)]
    return "\n\n".join(results) or "(no results)"
