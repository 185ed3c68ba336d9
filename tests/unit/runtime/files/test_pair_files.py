"""Files of pairs: written, and folded without losing a pair or hiding one that is in a window."""

from pathlib import Path

import numpy as np

from millpond.engine.joins.pairs import PairsReader
from millpond.runtime.files.pair_files import FoldPairsJob, fold_pairs, write_pairs
from millpond.state.arrow_file import open_arrow


def test_a_fold_has_the_pairs_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "pairs").mkdir()
    random = np.random.default_rng(1)
    files, pairs = [], []
    for least in (0, 1_000, 500_000):
        left = random.integers(0, 10**6, 300)
        right = random.integers(2**33, 2**33 + 10**6, 300)
        oldest = random.integers(least, least + 40_000, 300)
        built = write_pairs(str(tmp_path), [left, right], oldest)
        assert (built.min_oldest, built.max_oldest) == (oldest.min(), oldest.max())
        files.append((built.file.path, built.file.checksum))
        pairs += list(zip(left.tolist(), right.tolist(), oldest.tolist(), strict=True))
    folded = fold_pairs(FoldPairsJob(str(tmp_path), tuple(files)))
    assert folded.file.rows == len(pairs)
    assert folded.max_oldest >= max(oldest for *_, oldest in pairs)
    reader = PairsReader.of(open_arrow(tmp_path / folded.file.path, folded.file.checksum))
    first, second = reader.after(int(reader.edges[0]))
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == sorted(
        (left, right) for left, right, _ in pairs
    )
    for since in (0, 20_000, 400_000, 510_000, 540_001):
        read = set(zip(*(own.tolist() for own in reader.after(since)), strict=True))
        assert {(left, right) for left, right, oldest in pairs if oldest >= since} <= read
