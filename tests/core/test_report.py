"""`plugrad report`: what the page says, and that nothing of a stranger's run becomes markup or leads out of it."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import plugrad, tiny_run

from plugrad.cli.curves import Curve
from plugrad.cli.report_page import MAX_POINTS, chart, ticks, words
from plugrad.cli.run_directory import RunDirectory

VOID = {"meta", "img", "circle", "line", "polyline", "polygon", "br"}
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
RETURN = "env_runners/episode_return_mean"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("--stop-timesteps=256", "--seed=3", "--evaluation.evaluation_interval=8")
    return tiny_run(tmp_path_factory.mktemp("report") / "whole", "CartPole-v1", *options)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


class Page(HTMLParser):
    """The elements and texts of a page; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(tmp_path: Path, *runs: Path) -> Page:
    plugrad("report", *runs, "-o", tmp_path / "page.html", code=0)
    return Page((tmp_path / "page.html").read_text())


def assert_asks_for_nothing(page: Page) -> None:
    assert {"script", "link", "iframe", "object", "a"}.isdisjoint(page.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    loaded = [value or "" for name, value in page.attributes if name in ("src", "href", "data", "srcset")]
    assert all(each.startswith("data:image/") for each in loaded)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes


def test_a_run_is_told_in_one_page(run: Path, tmp_path: Path) -> None:
    page = made(tmp_path, run)
    assert_asks_for_nothing(page)
    summary = json.loads((run / "summary.json").read_text())
    for each in ("ppo on CartPole-v1", "stopped at 256 timesteps", f"{summary['iterations']:,}", RETURN):
        assert each in page.text
    for each in ("last evaluation", "best mean return", "train_batch_size", "goal 475", "plugrad video "):
        assert each in page.text
    for name, version in summary["system"].items():
        assert name in page.text
        assert version in page.text
    assert {"plugrad", "Python", "numpy", "system", "CPUs"} <= summary["system"].keys()
    assert str(tmp_path) not in (tmp_path / "page.html").read_text(), "folders of the reader's machine"


def test_it_stands_in_the_run_unless_another_file_is_named(run: Path) -> None:
    assert plugrad("report", run, code=0).stdout == f"{run}/report.html\n"
    assert (run / "report.html").is_file()


def test_runs_are_compared_by_the_settings_in_which_they_differ(run: Path, tmp_path: Path) -> None:
    others = []
    for name, settings in {"s4": {"seed": 4}, "fast": {"lr": 0.5}}.items():
        other = RunDirectory(Path(shutil.copytree(run, tmp_path / name)))
        other.write_config(other.read_config().changed(**settings))
        others.append(other.path)
    page = made(tmp_path, run, *others)
    assert "ppo on CartPole-v1: 3 runs" in page.text
    differing = page.text.partition("In which the runs differ")[2].partition("Other than the default")[0]
    assert differing.split() == [
        "settingruns4fast",
        "lr0.00030.00030.5",
        "seed343",
    ]  # cells stand side by side
    assert "lr=0.0003: median of 2 runs" in page.text
    assert "95 % bootstrap intervals" in page.text


def test_a_film_is_part_of_the_page(run: Path, tmp_path: Path) -> None:
    film = b"GIF89a" + bytes(range(256))
    (run / "video.gif").write_bytes(film)
    page = made(tmp_path, run)
    (source,) = [value for name, value in page.attributes if name == "src"]
    assert source == f"data:image/gif;base64,{base64.b64encode(film).decode()}"


def test_what_is_no_film_is_left_out(run: Path, tmp_path: Path) -> None:
    (run / "video.gif").write_bytes(b"<svg onload=alert(1)>")
    assert "video.gif is no picture" in made(tmp_path, run).text
    (run / "video.gif").unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"GIF8 of somebody else")
    (run / "video.gif").symlink_to(secret)
    page = made(tmp_path, run)
    assert "The film is left out" in page.text
    assert "img" not in page.tags


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "summary.json"])
def test_no_link_brings_a_file_of_somebody_else_into_the_page(run: Path, whole: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to(whole / name)
    stderr = plugrad("report", run, code=2).stderr
    assert name in stderr
    assert "link" in stderr
    assert not (run / "report.html").exists()


def test_texts_of_a_stranger_stay_texts(run: Path, tmp_path: Path) -> None:
    named = run.rename(tmp_path / "<script>alert(2)<")
    directory = RunDirectory(named)
    directory.write_config(
        directory.read_config().changed(env=EVIL, model_config={"custom": {EVIL: f"\x1b{EVIL}"}})
    )
    summary: dict[str, Any] = directory.read_summary()
    summary |= {"algorithm": EVIL, "ended": EVIL, "seconds": EVIL, "system": {EVIL: [EVIL]}}
    (named / "summary.json").write_text(json.dumps(summary))
    rows = [json.loads(line) for line in directory.metrics.jsonl.read_text().splitlines()]
    more = {f"env_runners/info/{EVIL}": 1.0, f"learners/{EVIL}/total_loss": 2.0, f"evaluation/{EVIL}": 3.0}
    more["evaluation/episode_return_mean"] = 4.0
    directory.metrics.jsonl.write_text("".join(json.dumps(row | more) + "\n" for row in rows))
    page = made(tmp_path, named)
    assert_asks_for_nothing(page)
    assert EVIL in page.text
    assert "\x1b" not in page.text


@pytest.mark.parametrize("text", ["{}\n", '{"iterations": NaN}', "[", "\ud800"])
def test_a_damaged_summary_is_one_line(run: Path, text: str) -> None:
    (run / "summary.json").write_text(text, errors="surrogatepass")
    done = plugrad("report", run)
    assert done.exit_code in (0, 2)
    assert done.stderr.count("\n") == (done.exit_code == 2)


def test_a_run_that_has_only_begun_has_a_page(run: Path, tmp_path: Path) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "summary.json").unlink()
    page = made(tmp_path, run)
    for each in ("There is nothing to draw", "was not evaluated", "no end: failed or killed", "do not say"):
        assert each in page.text


# --- the charts ---


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (-3, 475), (0.69313, 0.69315), (1e-9, 2e-9), (5, 5), (0, 0), (-1e100, 1e100), (1e99, 1e100)],
)
def test_ticks_are_round_and_enclose_what_is_drawn(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert found[0] <= low + 1e-9 * abs(low)
    assert found[-1] >= high - 1e-9 * abs(high)
    steps = np.diff(np.array(found) / max(map(abs, found)))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-3)
    assert len({words(each, found[1] - found[0]) for each in found}) == len(found)


def test_equal_steps_are_equally_far_apart_from_edge_to_edge() -> None:
    steps = np.array([0.0, 50.0, 100.0])
    picture = chart(
        [Curve(label="a", timesteps=steps, returns=steps, low=steps, high=steps, threshold=None)], "t"
    )
    (points,) = re.findall('<polyline class="line c0" points="(.*)"/>', picture)
    left, right = (float(each) for each in re.findall('<line class="grid" x1="(.*?)" x2="(.*?)"', picture)[0])
    assert [float(each.split(",")[0]) for each in points.split()] == [left, (left + right) / 2, right]


def test_a_line_of_many_points_is_drawn_with_few_and_keeps_its_extremes() -> None:
    x = np.arange(100_000.0)
    values = np.sin(x / 9000)
    line = Curve(label="a", timesteps=x, returns=values, low=values - 1, high=values + 1, threshold=None)
    picture = chart([line], "t")
    (points,) = re.findall('<polyline class="line c0" points="(.*)"/>', picture)
    assert len(points.split()) == MAX_POINTS
    assert len(picture) < 30_000


@pytest.mark.parametrize("numbers", [[1.0], [0.0, 0.0], [-1e100, 1e100], [5e-324, 1.0]])
def test_any_numbers_are_drawn_inside_of_the_picture(numbers: list[float]) -> None:
    values = np.array(numbers)
    line = Curve(label="a", timesteps=values * 0, returns=values, low=values, high=values, threshold=None)
    places = [float(each) for each in re.findall(r'c?[xy][12]?="(-?[\d.]+)"', chart([line], "t"))]
    assert places
    assert all(0 <= each <= 560 for each in places)
