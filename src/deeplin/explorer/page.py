"""One visitor's page: inputs become a checked state, the state becomes pictures.

Computations run on small pools of threads, so that the server stays free for other visitors. A
later move of a slider drops what is under way and only the last one is shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from html import escape
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column
from bokeh.models import Model, TextInput
from panel.io import unlocked

from deeplin.checks import InputError
from deeplin.explorer.compute import critical_rate
from deeplin.explorer.controls import Controls
from deeplin.explorer.critical_mark import CriticalMark
from deeplin.explorer.phase import PhaseTab
from deeplin.explorer.presets import PRESETS
from deeplin.explorer.state import AXES, DATA, DESCENT, NETWORK, PHASE, THEOREMS, WIDE, State
from deeplin.explorer.tab import Stage, Tab, text
from deeplin.explorer.theorems import TheoremsTab
from deeplin.explorer.training import TrainingTab
from deeplin.explorer.upload import Upload, read_upload
from deeplin.explorer.wide import WideTab

GROUPS = {
    "data": DATA,
    "network": NETWORK,
    "descent": DESCENT,
    "axes": AXES,
    "phase": PHASE,
    "theorems": THEOREMS,
    "wide": WIDE,
}
TABS = {"training": TrainingTab, "phase": PhaseTab, "wide": WideTab, "theorems": TheoremsTab}
REST = 0.25
"""Seconds without a move before what is shown beside the curves is computed."""
LOG = logging.getLogger(__name__)


class Page:
    """The models of one browser tab, and the state behind them."""

    def __init__(self, document: Document, state: State, pools: Sequence[Executor]):
        self.document, self.state, self.pools = document, state, pools
        self._changed = asyncio.Event()
        self.upload: Upload | None = None
        self.closed = False
        self._shown: State | None = None
        self._worker: asyncio.Future | None = None
        names = ("tab", *(name for group in GROUPS.values() for name in group))
        self.controls = Controls(names, state, self._moved)
        self.mark = CriticalMark()
        self.message, self.verdict = text("message"), text("verdict", "<p>Computing…</p>")
        self.message.visible = False
        self.wish = TextInput(name="wish", visible=False)
        self.reply = TextInput(name="reply", visible=False)
        self.inbox = TextInput(name="inbox", visible=False)
        self.link = TextInput(name="link", visible=False, value=state.link())
        self.wish.on_change("value", lambda _a, _o, new: self._wished(new))
        self.inbox.on_change("value", lambda _a, _o, new: self._received(new))
        self.tabs: dict[str, Tab] = {name: kind(self.open) for name, kind in TABS.items()}
        for name, tab in self.tabs.items():
            tab.layout.name = f"layout_{name}"  # by which the page finds its figures

    @property
    def roots(self) -> dict[str, Model]:
        """The models of the page, by the place they have in the template."""
        groups = {f"group_{name}": self._group(name) for name in GROUPS}
        hidden = column(self.wish, self.reply, self.inbox, self.link, visible=False)
        fixed = {"tab": self.controls["tab"], "message": self.message, "verdict": self.verdict}
        views = {f"view_{name}": tab.layout for name, tab in self.tabs.items()}
        return fixed | groups | views | {"hidden": hidden}

    def _group(self, name: str) -> Model:
        widgets: list[Any] = []
        for entry in GROUPS[name]:
            widgets.append(self.controls[entry])
            if entry == "learning_rate":
                widgets.append(self.mark.model)
        return column(*widgets, sizing_mode="stretch_width")

    # --- what a visitor does -------------------------------------------------------------------

    def open(self, **values: Any) -> None:
        """Go to the state with these values replaced; complain where one is out of bounds."""
        try:
            self.go(self.state.change(**values))
        except InputError as error:
            self.complain(str(error))

    def go(self, state: State) -> None:
        """Show a state: widgets, link, pictures. What was complained about before is past."""
        self.state = state
        self._say("", "note")
        self.controls.show(state)
        self._adapt()
        self.link.value = state.link()
        self.refresh()

    def start(self) -> None:
        """Show the first state, once the browser has connected."""
        self._adapt()
        self.refresh()

    def complain(self, sentence: str) -> None:
        """Say why something was not done. Nothing is computed."""
        self._say(sentence, "bad")

    def _say(self, sentence: str, level: str) -> None:
        self.message.text = f'<p class="{level}">{escape(sentence)}</p>' if sentence else ""
        self.message.visible = bool(sentence)

    def close(self) -> None:
        """Forget everything when the browser tab has gone."""
        self.closed = True
        self.upload = None
        if self._worker is not None:
            self._worker.cancel()

    def _moved(self, name: str, value: Any) -> None:
        if name == "data" and value == "file" and self.upload is None:
            self.complain("Choose a CSV file below; until then the synthetic data stay.")
            self.controls.show(self.state)
            return
        self.open(**{name: value})

    def _wished(self, wish: str) -> None:
        """A button of the page was pressed: `verb:object#count`."""
        verb, _, rest = wish.partition(":")
        what = rest.partition("#")[0]
        if verb == "preset" and what in PRESETS:
            names = ("tab", *DATA, *NETWORK, *DESCENT, *WIDE)  # axes and kept runs stay
            self.open(**{name: getattr(PRESETS[what].state, name) for name in names})
        elif verb == "keep" and what in ("a", "b"):
            self.open(**{f"saved_{what}": self.state.link()})
        elif verb == "clear":
            self.open(saved_a="", saved_b="")
        elif verb == "csv":
            self.reply.value = self.tabs[self.state.tab].csv(self.state)
        elif verb:
            self.complain("This button is not known; reload the page.")

    def _received(self, message: str) -> None:
        if not message:
            return
        self.inbox.value = ""
        try:
            self.upload = read_upload(message)
        except InputError as error:
            self.complain(str(error))
            return
        self._shown = None
        self.open(data="file")

    # --- what the page answers -----------------------------------------------------------------

    def _adapt(self) -> None:
        """Hide the inputs that have no meaning in this state."""
        state, show = self.state, self.controls
        for name in DATA[1:]:
            show[name].visible = state.data == "synthetic"
        show["width"].visible = state.architecture != "residual"
        show["initialisation"].visible = state.architecture == "perceptron"
        show["spikes"].visible = show["epsilon"].visible = state.spectrum == "spike"
        show["exponent"].visible = state.spectrum == "power"

    def refresh(self) -> None:
        """Compute and show what is wanted now; what is under way for an older state is dropped."""
        self._changed.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
            self._worker.add_done_callback(self._report)

    def _report(self, worker: asyncio.Future) -> None:
        """Bring an error of the program itself to the log and to the page."""
        if not worker.cancelled() and (error := worker.exception()) is not None:
            LOG.error("the explorer could not show a page", exc_info=error)
            sentence = f"Something went wrong: {error}. The log of the server has the details."
            self.document.add_next_tick_callback(partial(self.complain, sentence))
            self._shown = self.state

    async def _work(self) -> None:
        while not self.closed and self._shown is not self.state:
            wanted, tab = self.state, self.tabs[self.state.tab]
            for stage, pool in zip(tab.stages(wanted), self.pools, strict=False):
                if pool is not self.pools[0]:
                    await self._rest()
                if self.state is wanted and not self.closed:
                    show = await self._computed(tab, stage, wanted, pool)
                if self.state is wanted and not self.closed:  # no later move made it pointless
                    await self._on_document(show)
            self._shown = wanted

    async def _rest(self) -> None:
        """Wait for a moving slider to come to rest: later stages would only slow down its answers.

        Returns at once when it has moved on.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), REST)

    async def _computed(
        self, tab: Tab, stage: Stage, state: State, pool: Executor
    ) -> Callable[[], None]:
        """Compute a stage and return how to show it; give up when the state changes meanwhile."""
        data = None if self.upload is None else self.upload.problem
        work = asyncio.get_running_loop().run_in_executor(pool, stage, state, data)
        self._changed.clear()
        change = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait({work, change}, return_when=asyncio.FIRST_COMPLETED)
        change.cancel()
        if not work.done():
            work.cancel()  # frees its place in the queue; what runs already ends unseen
            return lambda: None
        try:
            return partial(self._show, tab, state, work.result())
        except InputError as error:
            return partial(self.complain, str(error))

    def _show(self, tab: Tab, state: State, result: Any) -> None:
        verdict = tab.show(state, result)
        if self.upload is not None and state.data == "file":
            self._say(self.upload.note, "note")
        if verdict is not None:
            self.verdict.text = verdict
        self.mark.show(critical_rate(state, self.upload and self.upload.problem))

    async def _on_document(self, change: Callable[[], None]) -> None:
        """Run a change of the page under the document's lock, as one message to the browser.

        Bokeh would send a message for each property, and the browser paint in between.
        """
        done: asyncio.Future = asyncio.get_running_loop().create_future()

        def apply() -> None:
            try:
                with unlocked():
                    change()
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

        if self.closed:
            return
        self.document.add_next_tick_callback(apply)
        await done
