"""`millpond demo`: a year of real flights past thousands of standing queries, and a proof.

The flights that left New York in 2013 and the weather there run through Spark Structured
Streaming while travellers come and ask: half of them before the first flight, some while the year
goes by, some when it is over. At the end everybody's answer is the same as if they had come first,
and the same again when the whole year comes at once.
"""

from __future__ import annotations

import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from millpond.demo.cluster import Cluster, answers_of, wait_for_lead
from millpond.demo.data import DAYS, FIRST_DAY, RELATIONS, ReplayedRows, prepare
from millpond.demo.full_speed import FullSpeed, Opener, replay_at_once
from millpond.demo.one_feed import TAG, show_feed
from millpond.demo.proof import Verdict, prove
from millpond.demo.replay import Meter, Replay, Tick
from millpond.demo.screen import Screen, seconds
from millpond.demo.through_kafka import ALERTS, KafkaTopics, redirect
from millpond.demo.travellers import NAMED, SCHEMA, Traveller, travellers
from millpond.demo.unusual import SUMMARY, show_unusual
from millpond.model.time import from_datetime
from millpond.service.pond import Pond
from millpond.service.results import Answer

#: Days that people may remember; the demo asks for past answers at them.
_REMEMBERED = (
    (datetime(2013, 2, 9, 12), "the blizzard"),
    (datetime(2013, 7, 10, 22), "thunderstorms"),
    (datetime(2013, 1, 31, 22), "a gale"),
)
#: Seconds between two looks at the pond during the replay.
_LOOK_SECONDS = 0.1
#: Seconds between two times the watched travellers' answers are drawn.
_DRAW_SECONDS = 0.5


def _on_spark(
    store: Path,
    progress: Callable[[dict[str, Any]], None],
    spark_conf: Mapping[str, str] | None = None,
    cluster: Cluster | None = None,
) -> Pond:
    from millpond.service.open_pond import open_pond

    if cluster is None:
        return open_pond(store, progress=progress, spark_conf=spark_conf)
    return open_pond(
        store,
        master=cluster.master,
        progress=progress,
        spark_conf=spark_conf,
        shared=cluster.place,
    )


def _on_running_spark(store: Path, progress: Callable[[dict[str, Any]], None]) -> Pond:
    from millpond.runtime.spark.session import find_running
    from millpond.service.open_pond import open_pond

    return open_pond(store, spark=find_running(), progress=progress)


def _pause(pond: Pond) -> None:
    time.sleep(_LOOK_SECONDS)


@dataclass(frozen=True)
class Scale:
    """How big the demo is and what it runs on.

    Attributes:
        days: Of the year.
        before, during, after: Travellers who come before, during and after the replay.
        twins: Pairs compared in the proof.
        instants: Past instants at which they are compared.
        invoked: Travellers whose answers are timed.
        open: Opens the pond over a store's directory.
        open_beside: Opens a second pond over another, on the same Spark session.
        pause: Called between two looks at the pond during the replay.
        through_kafka: Whether the rows come from topics of a broker of the demo's own.
        cluster: The cluster that the work is spread over, with a second driver; None for none.
    """

    days: int = DAYS
    before: int = 1_000
    during: int = 600
    after: int = 600
    twins: int = 150
    instants: int = 5
    invoked: int = 600
    open: Opener = _on_spark
    open_beside: Opener = _on_running_spark
    pause: Callable[[Pond], None] = _pause
    through_kafka: bool = False
    cluster: Cluster | None = None


@dataclass
class _Figures:
    """What was measured."""

    together: float = 0.0
    alone: list[float] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    freshness: list[float] = field(default_factory=list)
    invoked: list[float] = field(default_factory=list)
    queries: int = 0
    at_once: FullSpeed | None = None


def on_spark(
    spark_conf: Mapping[str, str] | None,
    *,
    through_kafka: bool = False,
    cluster: Cluster | None = None,
) -> Scale:
    """The whole demo, on a Spark session with these settings besides."""
    opener = partial(_on_spark, spark_conf=spark_conf, cluster=cluster)
    return Scale(open=opener, through_kafka=through_kafka, cluster=cluster)


def run_demo(
    serve: bool = False, port: int = 0, scale: Scale | None = None, screen: Screen | None = None
) -> None:
    """Runs the demo and prints it.

    Args:
        serve: Leave the server up afterwards, until Ctrl-C.
        port: Of the server.
        scale: How big; the whole year if absent.
        screen: Where it is shown.

    Raises:
        MillpondError: SERVE-701 or SERVE-702 before anything is done; DATA-502 without the data.
        typer.Exit: with status 1 when early and late answers differ, 130 after Ctrl-C.
    """
    scale = scale or Scale()
    screen = screen or Screen()
    listener = None
    if serve:
        from millpond.api import listening

        # Before anything that takes time: the port may be taken.
        listener = listening.bind("127.0.0.1", port)
    directory = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    verdict = None
    try:
        with _unwind_on_sigterm():
            demo = _Demo(directory, scale, screen)
            try:
                verdict = demo.run()
                if listener is not None:
                    demo.serve(listener)
            finally:
                demo.close()
    except KeyboardInterrupt:
        screen.say("Stopped.")
    finally:
        if listener is not None:
            listener.close()
        shutil.rmtree(directory, ignore_errors=True)
    # Raised here, outside of the handlers, so that the interrupt and its frames are freed.
    if verdict is None:
        raise typer.Exit(130)
    if not verdict.agree:
        raise typer.Exit(1)


class _Demo:
    """One run, part by part."""

    def __init__(self, directory: Path, scale: Scale, screen: Screen) -> None:
        self._directory = directory
        self._scale = scale
        self._screen = screen
        self._meter = Meter()
        self._figures = _Figures()
        self._pond: Pond | None = None
        self._topics: KafkaTopics | None = None

    @property
    def pond(self) -> Pond:
        assert self._pond is not None
        return self._pond

    def run(self) -> Verdict:
        """Run everything but the server."""
        began = time.monotonic()
        scale = self._scale
        self._screen.title("Millpond: the flights that left New York in 2013, and who waits.")
        feed = self._start()
        total = scale.before + scale.during + scale.after
        people = list(travellers(feed.flights, total))
        early = people[: scale.before]
        during = people[scale.before : scale.before + scale.during]
        self._register_before(early)
        self._replay(feed, during)
        self._register_after(people[scale.before + scale.during :])
        self._show_answers(feed)
        self._screen.part("   Alerts of all airports, through one feed")
        feed_agrees = show_feed(self.pond, feed.flights, self._screen)
        alerts_agree = self._show_alerts()
        verdict = self._prove(early, feed)
        if not feed_agrees:
            verdict.differences.append("the feed of alerts differs from the flights")
        if not alerts_agree:
            verdict.differences.append(f"topic {ALERTS} differs from the query's changes")
        self._time_answers(people)
        if scale.cluster is None:
            self._replay_at_once(feed, people, verdict)
        else:
            self._hand_over(scale.cluster, people, verdict)
        self._summarize(time.monotonic() - began)
        return verdict

    def close(self) -> None:
        """Stops what was started."""
        self._screen.end()
        if self._pond is not None:
            self._pond.close()
        if self._topics is not None:
            self._topics.close()

    # -- part by part --------------------------------------------------------------------------

    def _start(self) -> ReplayedRows:
        self._screen.part("1  Starting")
        began = time.monotonic()
        feed_directory = self._directory / "feed"
        feed_directory.mkdir()
        with ThreadPoolExecutor(1) as other:
            # Spark starts meanwhile: in this thread, because it handles Ctrl-C.
            prepared = other.submit(prepare, feed_directory, self._scale.days)
            if self._scale.through_kafka:
                self._topics = KafkaTopics(self._directory / "kafka")
            self._pond = self._scale.open(self._directory / "store", self._meter)
            feed = prepared.result()
        self._screen.say(
            f"{feed.rows_of('flights'):,} flights and {feed.rows_of('weather'):,} hours of weather "
            f"are ready, as a file a day; Spark is up ({seconds(time.monotonic() - began)})."
        )
        if (cluster := self._scale.cluster) is not None:
            where = "an object store" if cluster.is_object_store else "a shared directory"
            self._screen.say(f"Tasks run in two workers of {cluster.master}; the store is {where}.")
        began = time.monotonic()
        schema = SCHEMA.format(directory=feed.directory)
        if self._topics:
            schema = redirect(schema, self._topics.bootstrap)
        self.pond.execute(schema)
        self.pond.execute(SUMMARY)
        if self._topics:
            self._topics.deliver_alerts(self.pond)
        reads = "read two topics of a Kafka broker" if self._topics else "watch two directories"
        self._screen.say(
            f"Streams flights and weather {reads}; relations "
            f"{', '.join(RELATIONS)} are loaded ({seconds(time.monotonic() - began)})."
        )
        return feed

    def _register_before(self, early: Sequence[Traveller]) -> None:
        self._screen.part("2  Travellers register before the first flight")
        self._figures.together = self._register(early)
        self._screen.say(
            f"{len(early):,} standing queries in {seconds(self._figures.together)}, each a row in "
            "the Query SteM. One of them, Dara's:"
        )
        dara = next(t for t in NAMED if t.name == "dara")
        for line in (
            dara.cql.replace(" FROM ", "\nFROM ")
            .replace(" ON ", "\n  ON ")
            .replace(" WHERE ", "\nWHERE ")
            .replace(" ORDER ", "\nORDER ")
            .split("\n")
        ):
            self._screen.say(f"  {line}")

    def _replay(self, feed: ReplayedRows, during: Sequence[Traveller]) -> None:
        self._screen.part("3  The year goes by, and more travellers come")
        send = self._topics.send if self._topics else None
        replay = Replay(feed, self.pond, self._meter, send)
        waiting = list(during)
        watched: list[tuple[Traveller, Answer]] = []
        drawn = 0.0
        self._screen.begin()
        for tick in replay.run():
            self._figures.ticks.append(tick)
            come = round(len(during) * tick.share) - (len(during) - len(waiting))
            if come > 0:
                self._register_while_streaming(waiting[:come])
                del waiting[:come]
            if time.monotonic() - drawn > _DRAW_SECONDS or tick.share >= 1:
                watched = [(t, self.pond.query(t.name).invoke()) for t in NAMED]
                drawn = time.monotonic()
            self._screen.live(tick, len(self.pond.queries()), watched)
            if tick.share < 1:
                self._scale.pause(self.pond)
        self._screen.end()
        self._figures.freshness = list(self._meter.freshness)
        last = self._figures.ticks[-1]
        self._screen.say(
            f"{last.tuples:,} tuples in {seconds(last.elapsed)} met {len(self.pond.queries()):,} "
            f"queries and made {last.matches:,} matches; {last.rejected:,} were rejected."
        )

    def _register_while_streaming(self, people: Sequence[Traveller]) -> None:
        """Travellers register while data streams in; the first of them alone, and timed."""
        self._figures.alone.append(self._register(people[:1]))
        if people[1:]:
            self._register(people[1:])

    def _register_after(self, late: Sequence[Traveller]) -> None:
        self._screen.part("4  The year is over, and still they come")
        took = self._register(late)
        self._figures.queries = len(self.pond.queries())
        self._screen.say(
            f"{len(late):,} more in {seconds(took)}: {self._figures.queries:,} standing queries, "
            "and every one is answered over the whole year."
        )

    def _show_answers(self, feed: ReplayedRows) -> None:
        self._screen.part("5  What some of them see, now and at instants of the past")
        end = FIRST_DAY + timedelta(days=len(feed.days))
        past = [(at, what) for at, what in _REMEMBERED[:2] if at.date() < end]
        for traveller in NAMED:
            handle = self.pond.query(traveller.name)
            answers = [("now", handle.invoke())]
            answers += [(f"({what})", handle.invoke(at)) for at, what in past]
            self._screen.answers(traveller, answers)
        show_unusual(self.pond, self._screen)

    def _show_alerts(self) -> bool:
        """Read the topic of alerts back; True if it is right, or there is none."""
        if self._topics is None:
            return True
        self._screen.part("   The alerts in Kafka")
        return self._topics.show_alerts(self.pond, self._screen)

    def _prove(self, early: Sequence[Traveller], feed: ReplayedRows) -> Verdict:
        self._screen.part("6  Does it matter when a query was registered?")
        chosen = random.Random(1).sample(list(early), min(self._scale.twins, len(early)))
        verdict = prove(self.pond, chosen, self._instants(feed))
        self._screen.say(
            f"{verdict.pairs:,} of the first travellers got twins who ask the same only now, "
            f"{verdict.apart:,} of them sharing no predicate with their elders."
        )
        self._screen.say(
            f"{verdict.answers:,} pairs of answers ({verdict.rows:,} rows), now and at "
            f"{self._scale.instants} instants, were compared row by row: as registered, and once "
            f"the kept data had been matched ({seconds(verdict.seconds_to_backfill)} later)."
        )
        if verdict.agree:
            self._screen.verdict("No. Early and late registration agree in every row.", True)
        else:
            self._screen.verdict(f"{len(verdict.differences):,} answers differ:", False)
            for line in verdict.differences[:5]:
                self._screen.say(line)
        return verdict

    def _instants(self, feed: ReplayedRows) -> list[int | None]:
        """Now, remembered days, and others drawn over the whole year."""
        draw = random.Random(7)
        minutes = len(feed.days) * 24 * 60
        first = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day)
        past = [at for at, _ in _REMEMBERED if at < first + timedelta(minutes=minutes)]
        while len(past) < self._scale.instants:
            past.append(first + timedelta(minutes=draw.randrange(minutes // 10, minutes)))
        return [None, *(from_datetime(at) for at in past[: self._scale.instants])]

    def _time_answers(self, people: Sequence[Traveller]) -> None:
        chosen = random.Random(3).sample(list(people), min(self._scale.invoked, len(people)))
        for traveller in chosen:
            handle = self.pond.query(traveller.name)
            began = time.perf_counter()
            handle.invoke()
            self._figures.invoked.append(time.perf_counter() - began)

    def _replay_at_once(
        self, feed: ReplayedRows, people: Sequence[Traveller], verdict: Verdict
    ) -> None:
        """Replay the year again, all of it at once; the answers have to be the same."""
        self._screen.part("7  The same year at full speed")
        scale, instants = self._scale, self._instants(feed)
        openers = scale.open_beside, scale.pause
        found = replay_at_once(feed, self.pond, people, instants, *openers, self._screen)
        self._figures.at_once = found
        verdict.differences += found.differences

    def _hand_over(self, cluster: Cluster, people: Sequence[Traveller], verdict: Verdict) -> None:
        """Have the second driver lead, and compare what both say."""
        self._screen.part("7  The driver goes, and another leads")
        url = cluster.start_second_driver(self._directory / "second")
        before = answers_of(self.pond, people)
        self.pond.close()
        self._pond = None
        began = time.monotonic()
        with wait_for_lead(url) as second:
            took = time.monotonic() - began
            after = answers_of(second, people)
        differing = [name for name, rows in before.items() if after[name] != rows]
        verdict.differences += [f"{name} has another answer at the second" for name in differing]
        self._screen.verdict(
            f"A driver that waited leads after {seconds(took)}, from a directory of its own. "
            f"{len(before) - len(differing):,} of {len(before):,} answers are the same there.",
            not differing,
        )

    def _summarize(self, total: float) -> None:
        self._screen.part("What was measured on this machine")
        figures, last = self._figures, self._figures.ticks[-1]
        source = "record" if self._topics else "file"
        fast = figures.at_once
        self._screen.summary(
            [
                ("tuples", f"{last.tuples:,}, {last.rejected:,} rejected"),
                ("tuples a second", f"{last.tuples / last.elapsed:,.0f}, through all queries"),
                ("at full speed", f"{fast.tuples / fast.seconds:,.0f} a second" if fast else "–"),
                ("standing queries", f"{figures.queries:,}"),
                ("matches", f"{last.matches:,}, {last.matches / last.elapsed:,.0f} a second"),
                ("to register one query", f"{_middle(figures.alone)} (median, data streaming in)"),
                (f"to register {self._scale.before:,}", seconds(figures.together)),
                ("to answer a traveller", f"{_spread(figures.invoked)}"),
                (f"from {source} to answer", f"{_spread(figures.freshness)}"),
                ("the whole demo", seconds(total)),
            ]
        )

    # -- afterwards ----------------------------------------------------------------------------

    def serve(self, listener: Any) -> None:
        """Serves the pond until Ctrl-C."""
        from millpond.api import server

        def ready(url: str) -> None:
            self._screen.part("The server is up, over the same pond")
            self._screen.link("console", f"{url}/")
            self._screen.link("Ada's answer", f"{url}/v1/queries/ada/result")
            self._screen.link("in February", f"{url}/v1/queries/ada/result?at=2013-02-09T12:00:00")
            self._screen.link("the feed", f"{url}/v1/changes?tag={TAG}&follow=true")
            self._screen.link("a shell", f"millpond shell --url {url}")
            self._screen.link("metrics", f"{url}/metrics")
            self._screen.say("Ctrl-C ends it; the demo's store is removed then.")

        server.serve(self.pond, listener=listener, on_ready=ready)

    def _register(self, people: Sequence[Traveller]) -> float:
        began = time.perf_counter()
        self.pond.register_many([(t.cql, t.name, {}) for t in people])
        return time.perf_counter() - began


@contextmanager
def _unwind_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise within the block, so that Spark stops and the temporary store goes."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _middle(values: Sequence[float]) -> str:
    return seconds(statistics.median(values)) if values else "–"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
    return f"{_middle(values)} (median), {seconds(high)} (p99 of {len(values):,})"
