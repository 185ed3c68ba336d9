"""The one list of options and settings: name, values, default, scope and purpose of each.

A query's options are checked against this list. So are the engine's settings, wherever they come
from: `millpond.open`, a flag of the command line, a control table. The reference is generated from
the list. To add an option, add an entry here, or in `sink_options.py` if sinks alone have it. A
setting of the engine also becomes a parameter of `millpond.open`; a test fails until it is one.
"""

from __future__ import annotations

from functools import cache

from millpond.catalog.option import Option, Scope
from millpond.catalog.option_values import (
    COMMENT,
    COUNT,
    INTEGER,
    LENGTH,
    LENGTH_OR_AUTO,
    LENGTH_OR_NEVER,
    LENGTH_OR_UNBOUNDED,
    MEMORY,
    MEMORY_OR_UNBOUNDED,
    OWNER,
    POSITIVE,
    RETAINED,
    TAGS,
    TASKS,
    TOLERANCE,
    TRUTH,
    WHOLE,
    anything,
    one_of,
)
from millpond.catalog.sink_options import SINK_OPTIONS

_EVERY = (
    Option(
        "materialize",
        (Scope.QUERY,),
        one_of(
            "lazy",
            "none",
            "eager",
            "auto",
            takes="'lazy' (match as data comes), 'none' (match at invocation), 'eager' (keep the"
            " current answer too), 'auto' (keep it if it is often asked for)",
        ),
        "",
        "lazy",
        entities=("answer",),
        allows_sharing=True,
        remark="See [standing queries](../guide/standing_queries.md).",
    ),
    Option(
        "active",
        (Scope.QUERY, Scope.STREAM, Scope.SINK),
        TRUTH,
        "an inactive query keeps its definition and is not matched; an inactive sink waits",
        True,
        allows_sharing=True,
        remark="A derived stream that has stopped goes on by `active = true`, the one option it"
        " has; so does a sink that is dead.",
    ),
    Option(
        "overload",
        (Scope.INPUT,),
        one_of("block", "shed random", "shed chunks", "shed lightest"),
        "what gives way when more comes than can be done: the pushes, which are refused"
        " (POND-417, HTTP 429), or the source, which is read later; or elements, whole pushes or"
        " splits, or the elements that no query above a weight matches, which are counted and lost",
        "block",
        remark="See [when it gets too much](../guide/pressure.md).",
    ),
    Option(
        "delay",
        (Scope.CLAUSE,),
        LENGTH,
        "how far behind the greatest timestamp an element may be and not be late",
        "0 SECONDS",
        remark="As the clause DELAY. The heartbeat does not go back: a longer delay counts from"
        " now on.",
    ),
    Option(
        "idle_after",
        (Scope.CLAUSE,),
        LENGTH_OR_NEVER,
        "after how long without arrivals the heartbeat follows the clock",
        "never",
        remark="As the clause IDLE AFTER; the time is counted from the change on if the stream was"
        " idle.",
    ),
    Option(
        "ahead",
        (Scope.CLAUSE, Scope.OPEN),
        LENGTH_OR_UNBOUNDED,
        "how far ahead of the clock an element's timestamp may be; rows further ahead are rejected",
        "1 DAY",
        remark="A stream's clause AHEAD, or ALTER STREAM, comes before that of `millpond.open`."
        " Bounded runs have no limit by themselves.",
    ),
    Option(
        "retain",
        (Scope.CLAUSE,),
        RETAINED,
        "how much is kept at least",
        "everything",
        remark="As the clause RETAIN. What is gone does not come back.",
    ),
    Option(
        "queue_memory",
        (Scope.SYSTEM,),
        MEMORY,
        "how many bytes of pushed rows may wait for their epoch, and how many between the operators"
        " of a dataflow",
        "256 MB",
        entities=("queue",),
        remark="A push that is larger is taken when nothing waits.",
    ),
    Option(
        "freshness",
        (Scope.SYSTEM,),
        LENGTH_OR_NEVER,
        "how long the oldest pushed row may wait for its epoch before work that can be made up for"
        " waits, however little of `queue_memory` is taken",
        "never",
        entities=("queue",),
    ),
    Option(
        "scheduler",
        (Scope.SYSTEM,),
        one_of(
            "fifo",
            "round robin",
            "greedy",
            "chain",
            takes="'fifo' (each slice to completion), 'round robin' (operators in turn), 'greedy'"
            " (the operator that removes most per second), 'chain' (of the steepest chains, the"
            " oldest slice)",
        ),
        "which operator of a dataflow runs next when a long step is cut into slices",
        "fifo",
        entities=("scheduler",),
        remark="See [when it gets too much](../guide/pressure.md#schedulers). It never alters a"
        " change.",
    ),
    Option(
        "latency",
        (Scope.SYSTEM,),
        LENGTH_OR_NEVER,
        "how long a slice may take through a dataflow: where the time that is left does not allow"
        " the scheduler's order, the oldest slice goes first",
        "never",
        entities=("scheduler",),
    ),
    Option(
        "replanning",
        (Scope.SYSTEM,),
        one_of(
            "auto",
            "never",
            takes="'auto' (when other plans cost less by what is measured), 'never' (plans stay as"
            " they were made)",
        ),
        "whether the plans of followed queries are made anew while they run",
        "auto",
        entities=("scheduler",),
        remark="See [plans that notice](../guide/plans.md#plans-that-notice). It alters no change.",
    ),
    Option(
        "memory",
        (Scope.SYSTEM,),
        MEMORY,
        "how many bytes of the state of followed queries are kept in memory, in all processes"
        " together; what is beyond lies in files of the store",
        "2 GB",
        entities=("memory",),
        remark="State in files changes no answer and takes more time. See"
        " [when it gets too much](../guide/pressure.md#state-in-files).",
    ),
    Option(
        "state_limit",
        (Scope.SYSTEM,),
        MEMORY_OR_UNBOUNDED,
        "how many bytes of state followed queries may have, in memory and in files together",
        "unbounded",
        entities=("memory",),
        remark="Beyond it the changes of the lightest queries are suspended; they are tried again"
        " later, and catch up.",
    ),
    Option(
        "entities_every",
        (Scope.SYSTEM,),
        LENGTH,
        "how often the control tables become elements of `system$entities`, while a query that is"
        " registered reads that stream",
        "10 SECONDS",
        entities=("observer",),
        remark="A question that is asked once looks by itself. At most ten times a second.",
    ),
    Option(
        "query_memory",
        (Scope.SYSTEM,),
        MEMORY_OR_UNBOUNDED,
        "how many bytes of elements a query of weight 1 is granted in its windows, one of weight 2"
        " twice as many",
        "unbounded",
        remark="A query that would need more is reduced as far as it tolerates when it is"
        " registered or altered; a query that tolerates nothing stays exact.",
    ),
    Option(
        "file_growth",
        (Scope.SYSTEM,),
        MEMORY_OR_UNBOUNDED,
        "how many bytes of disk the rows of one file of a source may take, beyond a hundred times"
        " the file's length",
        "1 GB",
        remark="A file that would take more stops its stream; nothing of its batch is kept.",
    ),
    Option(
        "tolerate",
        (Scope.QUERY,),
        TOLERANCE,
        "how far the query may be reduced when there is not enough memory or time: the shortest"
        " window, the smallest sample, the widest interval of an estimate, the greatest share of"
        " rows that a filter lets through",
        "nothing",
        is_settled=True,
        remark="See [what you tolerate](../guide/tolerate.md).",
    ),
    Option(
        "weight",
        (Scope.QUERY,),
        POSITIVE,
        "the query's share of the work when there is too little time for all queries",
        1,
        entities=("answer",),
        remark="Work for queries of greater weight is done first: matching, merging, kept answers.",
    ),
    Option(
        "max_rows",
        (Scope.QUERY,),
        COUNT,
        "the most rows an answer may have",
        1_000_000,
        entities=("answer",),
        allows_sharing=True,
    ),
    Option(
        "max_seconds",
        (Scope.QUERY,),
        POSITIVE,
        "the longest time an evaluation may take, in seconds",
        30.0,
        entities=("answer",),
        allows_sharing=True,
    ),
    Option(
        "max_memory",
        (Scope.QUERY,),
        MEMORY,
        "the most memory an evaluation may keep for groups, sorts and joins",
        "384 MB",
        entities=("answer",),
        allows_sharing=True,
        remark="All long evaluations together keep no more than the server's --max-memory, so that"
        " one that may keep it all runs alone. Less than 8 MB counts as 8 MB.",
    ),
    Option(
        "changes",
        (Scope.QUERY,),
        one_of("from registration", "from beginning"),
        "which changes FETCH begins with",
        "from registration",
        is_settled=True,
        allows_sharing=True,
        remark="It counts when the first change is asked for, and not after.",
    ),
    Option(
        "follow",
        (Scope.QUERY,),
        TRUTH,
        "whether the query's changes are computed from now on, though nobody has asked for them",
        False,
        allows_sharing=True,
        remark="A query that is followed stays so: `false` changes nothing then.",
    ),
    Option(
        "strategy",
        (Scope.QUERY, Scope.ENGINE),
        one_of("aware", "direct", "negative"),
        "how operators learn that rows have left",
        "aware",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, and does not alter them. By default it is that of"
        " the engine.",
    ),
    Option(
        "partitions",
        (Scope.QUERY,),
        COUNT,
        "into how many partitions by expiration time an operator puts its rows",
        unless_given="what costs least",
        remark="It is for the query's changes, with strategy 'aware'.",
    ),
    Option(
        "eager_expiration",
        (Scope.QUERY, Scope.ENGINE),
        LENGTH,
        "how long changes may wait that come from expiration alone",
        "0 SECONDS",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, and does not alter them"
        " ([expiration intervals](../guide/changes.md#expiration-intervals)). By default it is that"
        " of the engine.",
    ),
    Option(
        "lazy_expiration",
        (Scope.QUERY, Scope.ENGINE),
        LENGTH_OR_AUTO,
        "how often expired rows are dropped from state that need not be read at once; 'auto' drops"
        " them when they are as many as the live rows",
        "auto",
        entities=("derivation", "changes"),
        remark="It is for the query's changes, too.",
    ),
    Option(
        "keep_changes",
        (Scope.QUERY,),
        COUNT,
        "how many changes are kept to be read again",
        1_000_000,
        entities=("derivation",),
        allows_sharing=True,
    ),
    Option(
        "seed",
        (Scope.QUERY,),
        WHOLE,
        "the seed of its samples",
        unless_given="from the query's text",
        is_settled=True,
        remark="Queries with the same text have the same sample, whenever they are registered.",
    ),
    Option(
        "owner",
        (Scope.QUERY,),
        OWNER,
        "whose query it is; lists, feeds and bulk changes choose queries by it",
        "",
        allows_sharing=True,
    ),
    Option(
        "tags",
        (Scope.QUERY,),
        TAGS,
        "what lists, feeds and bulk changes choose queries by; a tag has no upper case",
        "",
        allows_sharing=True,
    ),
    Option(
        "comment",
        (Scope.QUERY,),
        COMMENT,
        "a remark for people",
        "",
        allows_sharing=True,
    ),
    Option(
        "routing",
        (Scope.ENGINE,),
        one_of("ticket", "fixed", "random", "worst"),
        "the eddies' routing policy; 'ticket' adapts to measured costs and selectivities",
        "ticket",
        entities=("eddies",),
    ),
    Option(
        "shards",
        (Scope.ENGINE,),
        TASKS,
        "into how many tasks the work on a shared join is divided: about the number of cores",
        2,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_pairs",
        (Scope.ENGINE,),
        INTEGER,
        "the most pairs one task may find in one batch; of a query whose own join finds more none"
        " are stored: it is joined at invocation",
        50_000_000,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_cores",
        (Scope.ENGINE,),
        INTEGER,
        "how many shared joins are kept up to date: those that most queries use; other joins are"
        " computed at invocation",
        64,
        type=int,
        entities=("joins",),
    ),
    Option(
        "max_connections",
        (Scope.SERVER,),
        INTEGER,
        "how many connections are kept at once; a new one takes the place of the longest idle one,"
        " and is answered 503 if none is idle",
        unless_given="as many as leave 256 descriptors of the process, or half of them",
        type=int,
    ),
    Option(
        "keep_alive",
        (Scope.SERVER,),
        POSITIVE,
        "how many seconds a connection is kept between two requests",
        75.0,  # longer than clients and proxies keep theirs: who closes first loses no request
        type=float,
    ),
    Option(
        "patience",
        (Scope.SERVER,),
        POSITIVE,
        "how many seconds a client may take for the headers of a request, and over how many its"
        " rate is measured",
        20.0,
        type=float,
    ),
    Option(
        "slowest_rate",
        (Scope.SERVER,),
        POSITIVE,
        "how many bytes a second a client at least sends of a body, and takes of an answer or a"
        " feed that waits for it; slower ones are cut off",
        1000.0,
        type=float,
    ),
    Option(
        "body_memory",
        (Scope.SERVER,),
        MEMORY,
        "how much of the bodies of all requests is held at once; beyond it, the body that has been"
        " coming longest gives way, or a request is answered 503",
        "256 MB",
    ),
    Option(
        "answer_memory",
        (Scope.SERVER,),
        MEMORY,
        "how much all answers that are being computed have, beyond which large ones are answered"
        " 503; and how much of answers waits for clients to take it, beyond which the connections"
        " that have waited longest are closed",
        "256 MB",
    ),
    Option(
        "function_seconds",
        (Scope.OPEN,),
        POSITIVE,
        "how long one call of a user-defined function may take, in seconds, unless the function has"
        " a limit of its own",
        10.0,
    ),
    Option(
        "function_key",
        (Scope.OPEN,),
        anything("a path"),
        "the file of the key that seals functions; the code of others is not run",
        unless_given="`MILLPOND_FUNCTION_KEY`, or `~/.config/millpond/function_key`",
    ),
    Option(
        "master",
        (Scope.OPEN,),
        anything("the URL of a Spark master"),
        "where tasks run",
        unless_given="this machine",
    ),
    Option(
        "spark",
        (Scope.OPEN,),
        anything("a Spark session"),
        "used instead of one of Millpond's own, and left running",
        unless_given="one of its own",
    ),
    Option(
        "spark_conf",
        (Scope.OPEN,),
        anything("a dictionary"),
        "settings of the Spark session that is started, beside Millpond's or in their place",
        unless_given="Millpond's",
    ),
    Option(
        "bounded",
        (Scope.OPEN,),
        TRUTH,
        "whether file sources are finite: they are read to their end before the first answer"
        " instead of being watched for more",
        False,
    ),
    Option(
        "progress",
        (Scope.OPEN,),
        anything("a function"),
        'called while sources are read, with `{"stream", "rows", "done"}`',
        unless_given="nobody is told",
    ),
    *SINK_OPTIONS,
)

#: Every option, by its name.
OPTIONS = {option.name: option for option in _EVERY}


@cache
def list_options(scope: Scope, entity: str | None = None) -> tuple[str, ...]:
    """The names of a scope's options, perhaps of those alone that a kind of entity has.

    >>> list_options(Scope.QUERY, "derivation")
    ('strategy', 'eager_expiration', 'lazy_expiration', 'keep_changes')
    """
    return tuple(
        option.name
        for option in _EVERY
        if scope in option.scopes and (entity is None or entity in option.entities)
    )
