"""Records that stages exchange: their classes, and the Parquet files that store them."""

from arc_refinery.records.branches import (
    batch_numbers,
    batches_of_shard,
    check_branch,
    check_episodes,
    in_shard,
)
from arc_refinery.records.files import (
    PACKAGES,
    ROWS_PER_GROUP,
    SCHEMA_VERSION,
    RecordError,
    check,
    check_made_from,
    columns,
    count,
    distinct,
    from_rows,
    installed_versions,
    kind_of,
    notes,
    packages_of,
    read,
    read_all,
    remake,
    settings_hash,
    settings_of,
    tables,
    texts,
    write,
    writer,
)
from arc_refinery.records.refining import (
    SERVED_BY,
    TOO_LONG,
    Attempt,
    Demonstration,
    Overlap,
    Prompt,
    ReferenceLogprob,
    Verdict,
    attempt_id,
    by_server,
)
from arc_refinery.records.schemas import Record, RecordClass, schema
from arc_refinery.records.tool_use import Call, Conversation, Episode, Question, Segment
