"""The page in a real headless browser: no network request, no error, nothing cut off."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from made_runs import Made
from stand_ins import stand_in
from test_page import hostile

from ngcdl.errors import NoBrowser
from ngcdl.report.shown import browser
from ngcdl.report.shown.browser import Browser
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.page import page
from ngcdl.report.shown.story import LETTERS

pytestmark = pytest.mark.lab  # a browser

GPU = Made(steps=2000, held=True)
CPU = Made("cpu", steps=300, rate=594.0)
PAGES = {
    "one": lambda: page([GPU.story()]),
    "three": lambda: page(
        [Made(steps=2000).story(), CPU.story("b", "B"), replace(CPU, dataset="synthetic").story("c", "C")]
    ),
    "table7": lambda: page([replace(GPU, workload="lstm", cores=256).story()]),
    "nasty": lambda: page([hostile("</script><img src=//x onerror=alert(1)>" * 20)]),
}


@contextmanager
def recording() -> Iterator[tuple[int, list[bytes]]]:
    """A proxy on loopback that records its requests and answers nothing."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(4096))

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], asked
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, list[bytes]]]:
    """A tab that sends all requests, even those to this machine, to a proxy that records them."""
    try:
        program = browser.found()
    except NoBrowser as error:
        pytest.skip(f"{error.message} export NGCDL_BROWSER=$(scripts/lab browser)")
    with recording() as (port, asked):
        proxy = [f"--proxy-server=http://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>"]
        with Browser.started(program, tmp_path_factory.mktemp("browser"), *proxy) as one:
            for domain in ("Runtime", "Log", "Network"):
                one.ask(f"{domain}.enable")
            yield one, asked


def shown(tab: Browser, folder: Path, document: str, width: int = 1400, dark: bool = False) -> None:
    (folder / "page.html").write_text(document, encoding="utf-8", errors="replace")
    tab.sized(width, scale=1)
    scheme = "dark" if dark else "light"
    tab.ask("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    tab.load("Page.navigate", {"url": (folder / "page.html").as_uri()})


def value(tab: Browser, expression: str) -> Any:
    """Evaluate JavaScript through the DevTools protocol, as the page's own policy forbids scripts."""
    return tab.ask("Runtime.evaluate", {"expression": expression, "returnByValue": True})["result"].get("value")


def complaints(tab: Browser) -> list[str]:
    """Return the console's errors, warnings and messages."""
    names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    return [str(event) for event in tab.told if event["method"] in names]


def requested(tab: Browser) -> list[str]:
    return [event["params"]["request"]["url"] for event in tab.told if event["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [380, 1400])
def test_the_page_loads_itself_alone_without_a_complaint_and_fits(
    tab: tuple[Browser, list[bytes]], tmp_path: Path, name: str, width: int
) -> None:
    one, asked = tab
    before = len(asked)
    shown(one, tmp_path, PAGES[name](), width)
    assert complaints(one) == []
    assert requested(one) == [(tmp_path / "page.html").as_uri()]
    assert asked[before:] == []
    assert value(one, "document.documentElement.scrollWidth") == width
    assert value(one, "document.body.scrollWidth") <= width


def test_a_page_that_asks_for_something_would_be_seen(tab: tuple[Browser, list[bytes]], tmp_path: Path) -> None:
    one, asked = tab
    shown(one, tmp_path, "<p>x<img src=http://127.0.0.2/x.png><script>console.error('no')</script>")
    assert any(b"127.0.0.2/x.png" in line for line in asked)
    assert "http://127.0.0.2/x.png" in requested(one)
    assert any("consoleAPICalled" in line for line in complaints(one))


def test_the_policy_of_the_page_holds_what_escaping_would_let_through(
    tab: tuple[Browser, list[bytes]], tmp_path: Path
) -> None:
    one, asked = tab
    before = len(asked)
    planted = "<img src=http://127.0.0.2/y.png onerror='document.title=1'><script>document.title='2'</script>"
    shown(one, tmp_path, PAGES["one"]().replace("<main>", f"<main>{planted}"))
    assert asked[before:] == []
    assert value(one, "document.title") == "cifar10 · ngcdl"
    assert len(complaints(one)) >= 2


def test_hostile_texts_are_texts_in_the_browser_s_own_document(
    tab: tuple[Browser, list[bytes]], tmp_path: Path
) -> None:
    one, _ = tab
    counted = "[document.querySelectorAll('*').length, document.querySelectorAll('img,script,b,iframe').length]"
    shown(one, tmp_path, page([hostile("x")]))
    plain = value(one, counted)
    for text in ("</script><img src=x onerror=alert(1)>", "<svg><style><img src=x>", "--><b>", "&lt;b&gt;"):
        shown(one, tmp_path, page([hostile(text)]))
        assert value(one, counted) == plain == [plain[0], 0]


def test_light_and_dark_are_two_looks_and_both_can_be_read(tab: tuple[Browser, list[bytes]], tmp_path: Path) -> None:
    one, _ = tab
    looks = []
    for dark in (False, True):
        shown(one, tmp_path, PAGES["three"](), dark=dark)
        wanted = ["main", ".note", "td", "dt", ".warning", ".legend li", ".ys span"]
        looks.append([_contrast(one, selector) for selector in wanted])
        assert all(ratio >= 4.5 for ratio, _ in looks[-1]), list(zip(wanted, looks[-1], strict=True))
        lines = value(one, "[...document.querySelectorAll('path.line')].map(it => getComputedStyle(it).stroke)")
        ground = value(one, "getComputedStyle(document.body).backgroundColor")
        # Graphics need 3: https://www.w3.org/TR/WCAG21/#non-text-contrast
        assert all(_ratio(_rgb(line), _rgb(ground)) >= 3 for line in lines)
        assert len(set(lines)) == 3
        muted = value(
            one,
            "(path => [...Array(8).keys()].map(at => { path.setAttribute('class', `line soft c${at}`);"
            "const style = getComputedStyle(path); return [style.stroke, Number(style.opacity)] }))"
            "(document.querySelector('path.line'))",
        )
        assert len({line for line, _ in muted}) == 8
        for line, opacity in muted:
            seen = tuple(
                ink * opacity + paper * (1 - opacity) for ink, paper in zip(_rgb(line), _rgb(ground), strict=True)
            )
            assert _ratio(seen, _rgb(ground)) >= 3, line
    assert looks[0][0][1] != looks[1][0][1]


def _contrast(tab: Browser, selector: str) -> tuple[float, str]:
    """Return a text's contrast with its background, and both colours."""
    behind = (
        "(it => { while (it && /rgba\\(.*, 0\\)/.test(getComputedStyle(it).backgroundColor)) it = it.parentElement;"
        "return getComputedStyle(it || document.body).backgroundColor })"
    )
    found = f"document.querySelector('{selector}')"
    ink, ground = value(tab, f"[getComputedStyle({found}).color, {behind}({found})]")
    return _ratio(_rgb(ink), _rgb(ground)), f"{ink} on {ground}"


def _rgb(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text)[:3])


def _ratio(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""

    def light(colour: tuple[float, ...]) -> float:
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_table_that_goes_on_is_shaded_at_that_edge_and_only_there(
    tab: tuple[Browser, list[bytes]], tmp_path: Path
) -> None:
    one, _ = tab
    find = "[...document.querySelectorAll('.wide')].find(it => it.scrollWidth > it.clientWidth)"
    for dark in (False, True):
        shown(one, tmp_path, PAGES["three"](), 380, dark)
        plain = _point(one, 1, 1)
        for scrolled, left, right in (("0", False, True), ("30", True, True), ("9999", True, False)):
            box = value(
                one,
                f"(it => {{ it.scrollLeft = {scrolled}; const box = it.getBoundingClientRect();"
                f"return [box.left, box.right, box.top + 2].map(Math.round) }})({find})",
            )
            edges = [_point(one, x, box[2]) for x in (box[0], box[1] - 1)]
            assert [edge != plain for edge in edges] == [left, right]
        shown(one, tmp_path, PAGES["three"](), 1400, dark)
        assert value(one, f"!({find})"), "where there is room no table has a shade"


def _point(tab: Browser, x: int, y: int) -> str:
    """An image of one point, to compare with others."""
    clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
    return str(
        tab.ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})["data"]
    )


def many_runs(count: int) -> str:
    """A page of runs whose images differ, so that the tables are as wide as they get."""
    made = (Made(steps=50, samples=5, digest=f"sha256:{at:064x}") for at in range(count))
    return page([one.story(f"run-{at}", at) for at, one in zip(LETTERS[:count], made, strict=False)])


@pytest.mark.parametrize("document", [PAGES["table7"], lambda: many_runs(12), lambda: many_runs(24)])
def test_no_column_of_a_table_is_cut_off_in_a_picture_or_on_paper(
    tab: tuple[Browser, list[bytes]], tmp_path: Path, document: Callable[[], str]
) -> None:
    one, _ = tab
    text = document()
    edges = "[...document.querySelectorAll('th, td')].map(it => it.getBoundingClientRect().right)"
    shown(one, tmp_path, browser.unscrolled(text), browser._WIDTH)
    drawn = one.ask("Page.getLayoutMetrics")["cssContentSize"]["width"]
    assert max(value(one, edges)) <= drawn == browser._WIDTH
    one.ask("Emulation.setEmulatedMedia", {"media": "print"})
    one.sized(718, scale=1)  # A4 between the browser's margins
    assert max(value(one, edges)) <= 718.5
    one.ask("Emulation.setEmulatedMedia", {"media": ""})


def test_what_can_t_be_broken_makes_a_picture_wider(tab: tuple[Browser, list[bytes]]) -> None:
    style = "<style>.wide { overflow-x: auto }</style>"
    wide = f"<!doctype html><head>{style}</head><div class=wide><div style='width:1500px'>x</div></div>"
    assert _size(browser.picture(wide).png)[0] >= 3000


def test_every_chart_has_a_height_and_its_lines_lie_inside(tab: tuple[Browser, list[bytes]], tmp_path: Path) -> None:
    one, _ = tab
    shown(one, tmp_path, PAGES["one"](), 380)
    boxes = value(
        one,
        "[...document.querySelectorAll('.plot > svg')].map(svg => { const s = svg.getBoundingClientRect();"
        "const l = [...svg.querySelectorAll('path.line, rect')].map(p => p.getBoundingClientRect());"
        "const [above, below] = [Math.min(...l.map(r => r.top - s.top)), Math.max(...l.map(r => r.bottom - s.bottom))];"
        "return [s.height, s.width, above, below] })",
    )
    assert len(boxes) == 7
    for height, width, above, below in boxes:
        assert (height > 100, width > 200) == (True, True)
        assert above > -3
        assert below < 3
    shown(one, tmp_path, PAGES["one"](), 1400)
    tops = value(one, "[...document.querySelectorAll('.plot')].map(it => it.getBoundingClientRect().top)")
    assert tops[0] == tops[1], "beside each other, the one with a legend, the other without"
    size = "document.documentElement.style.fontSize = '200%'; getComputedStyle(document.body).fontSize"
    assert value(one, size) == "32px", "text follows the size that a reader has set"


def extreme(steps: float, rate: float, losses: tuple[float, float]) -> str:
    """A page of a run with so many steps, so many examples/s, and such losses."""
    events: list[dict[str, Any]] = list(GPU.events())
    for event in events:
        if event["event"] == "step":
            share = event["step"] / GPU.steps
            event |= {"step": share * steps, "loss": losses[0] + (losses[1] - losses[0]) * share}
            event |= {"examples_per_second": event["examples_per_second"] and rate}
    return page([read_story(GPU.run("r"), events, GPU.measured())])


@pytest.mark.parametrize(
    ("steps", "rate", "losses"),
    [(1e6, 1e7, (0.0, 1e15)), (1e7, 15e6, (4e-8, 5e-8)), (99_000, 99_000, (0.693147, 0.693148))],
)
@pytest.mark.parametrize("width", [390, 800, 1100])
def test_every_label_of_an_axis_is_inside_its_figure_and_apart_from_the_others(
    tab: tuple[Browser, list[bytes]], tmp_path: Path, steps: float, rate: float, losses: tuple[float, float], width: int
) -> None:
    one, _ = tab
    shown(one, tmp_path, extreme(steps, rate, losses), width)
    figures = value(
        one,
        "[...document.querySelectorAll('figure')].map(f => [f, ...f.querySelectorAll('.ys span, .xs span')].map(it => {"
        "const r = it.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom] }))",
    )
    assert len(figures) == 7
    for figure, *labels in figures:
        assert all(left >= figure[0] - 0.5 and right <= figure[1] + 0.5 for left, right, _, _ in labels)
        for a, b in combinations(labels, 2):
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    assert value(one, "document.documentElement.scrollWidth") == width


def test_a_picture_is_the_whole_page(tab: tuple[Browser, list[bytes]]) -> None:
    drawn = browser.picture(PAGES["one"]())
    assert drawn.png.startswith(b"\x89PNG\r\n\x1a\n")
    assert (_size(drawn.png)[0], drawn.share) == (2200, 1)
    assert _size(drawn.png)[1] > 4000


def _size(png: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(png[at : at + 4]) for at in (16, 20))


def test_a_picture_needs_no_file_that_the_browser_might_not_see(
    tab: tuple[Browser, list[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "like-a-snap"  # a snap has its own /tmp
    script.write_text(f'#!/bin/sh\nmount -t tmpfs none "$TMPDIR" && exec {browser.found()} "$@"\n')
    script.chmod(0o755)
    start = tmp_path / "start"
    start.write_text(f'#!/bin/sh\nexec unshare --user --map-root-user --mount {script} --no-sandbox "$@"\n')
    start.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    document = "<!doctype html><body style='margin:0'><div style='height:10000px'>x</div>"
    here = browser.picture(document)
    monkeypatch.setenv("NGCDL_BROWSER", str(start))
    assert browser.picture(document) == here


def test_a_page_that_can_t_be_loaded_is_an_error_and_not_a_picture_of_one(
    tab: tuple[Browser, list[bytes]], tmp_path: Path
) -> None:
    with pytest.raises(NoBrowser, match="can't load the page: net::ERR_FILE_NOT_FOUND"):
        tab[0].load("Page.navigate", {"url": (tmp_path / "none.html").as_uri()})


@pytest.mark.parametrize(("height", "share"), [(10_000, 1.0), (15_998, 1.0), (40_000, 0.4)])
def test_a_long_page_is_drawn_smaller_and_only_what_could_not_be_read_is_cut(
    tab: tuple[Browser, list[bytes]], height: int, share: float
) -> None:
    drawn = browser.picture(f"<!doctype html><body style='margin:0'><div style='height:{height}px'>x</div>")
    width, pixels = _size(drawn.png)
    assert drawn.share == pytest.approx(share, abs=0.0002)
    assert 15_990 <= pixels <= 16_000
    assert width == pytest.approx(1100 * max(16_000 / height, 1), abs=1)


def test_it_prints_on_paper(tab: tuple[Browser, list[bytes]], tmp_path: Path) -> None:
    import base64

    one, _ = tab
    shown(one, tmp_path, PAGES["three"](), dark=True)
    paper = base64.b64decode(one.ask("Page.printToPDF", {"printBackground": False})["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 8
    one.ask(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    both = "(of => [of(document.body).backgroundColor, of(document.querySelector('h2')).breakAfter])(getComputedStyle)"
    assert value(one, both) == ["rgb(255, 255, 255)", "avoid"]
    assert value(one, "getComputedStyle(document.documentElement).getPropertyValue('--c1')") == "#d55e00"
    one.ask("Emulation.setEmulatedMedia", {"media": ""})


def test_without_a_browser_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NGCDL_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowser, match="no Chromium or Chrome is on PATH") as caught:
        browser.found()
    assert "apt-get install chromium" in caught.value.hint
    monkeypatch.setenv("NGCDL_BROWSER", "/nowhere/chromium")
    with pytest.raises(NoBrowser, match="is not a program"):
        browser.found()


@pytest.mark.parametrize("body", ["exit 3", "exec sleep 0", "printf 'x'; exit 1"])
def test_a_browser_that_ends_at_once_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    monkeypatch.setenv("NGCDL_BROWSER", str(stand_in(tmp_path, "chromium", body)))
    with pytest.raises(NoBrowser, match="ended"):
        browser.picture("<p>x")


def test_a_browser_sees_no_key_of_ngc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush")
    monkeypatch.setenv("NGC_CLI_API_KEY", "nvapi-hush")
    monkeypatch.setenv("NGCDL_BROWSER", str(stand_in(tmp_path, "chromium", f"env > {tmp_path}/env")))
    with pytest.raises(NoBrowser, match="ended"):
        browser.picture("<p>x")
    assert "hush" not in (tmp_path / "env").read_text()
