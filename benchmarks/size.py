"""Print how much there is to read, beside another commit: lines of code, words of documents, keys of configs.

    make size                    the checkout
    make size SINCE=df479225     beside that commit

Generated reports, data and weights do not count. Rows of the reference are those of the tables in config/README.md.
"""

import argparse
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "workflow/arc_refinery/"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def files_of(commit: str) -> dict[str, bytes]:
    """Return the tracked files that count, of a commit or, without one, of the checkout."""
    listed = git("ls-tree", "-r", "--name-only", commit) if commit else git("ls-files")
    names = [name for name in listed.decode().splitlines() if counts_as(name)]
    if not commit:
        return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).exists()}
    return {name: git("show", f"{commit}:{name}") for name in names}


def counts_as(name: str) -> str:
    """Return what a file counts as; empty if it does not count."""
    path = Path(name)
    if path.suffix == ".py":
        if name.startswith(PACKAGE):
            inner = path.relative_to(PACKAGE).parts
            return f"lines of package: {inner[0] if len(inner) > 1 else '(top)'}"
        return (
            f"lines of {path.parts[0]}" if path.parts[0] in ("tests", "benchmarks", "docs") else "lines of pretraining"
        )
    if path.suffix in (".smk", "") and (path.parts[0] == "rules" or path.name in ("Snakefile", "Makefile")):
        return "lines of rules"
    if path.suffix == ".md" and "sample-report" not in path.parts:
        return f"words of {name}"
    if path.suffix == ".md":
        return "words of sample reports"
    return "configs" if len(path.parts) == 2 and path.parts[0] == "config" and path.suffix == ".yaml" else ""


def sizes(files: dict[str, bytes]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for name, content in files.items():
        kind = counts_as(name)
        unit = kind.partition(" ")[0]
        sums[kind] += 1 if unit == "configs" else content.count(b"\n") if unit == "lines" else len(content.split())
        if name == "config/README.md":
            sums["rows of the config reference"] = sum(line.startswith(b"| `") for line in content.splitlines())
    sums["= lines of package"] = sum(n for kind, n in sums.items() if kind.startswith("lines of package: "))
    documents = ("words of docs", "words of README", "words of CHANGELOG", "words of config", "words of CONTRIBUTING")
    sums["= words of documents"] = sum(n for kind, n in sums.items() if kind.startswith(documents))
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="", help="a commit to print beside the checkout")
    since = parser.parse_args().since
    now = sizes(files_of(""))
    before = sizes(files_of(since)) if since else now
    for kind in sorted(now | before):
        change = f"{before[kind]:>8,}  {now[kind] - before[kind]:>+8,}" if since else ""
        print(f"{kind:50} {now[kind]:>8,} {change}".rstrip())


if __name__ == "__main__":
    main()
