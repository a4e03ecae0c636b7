"""The messages between a front end and the engine host.

One frame carries one message (see `midspan_engine.framing`). A front end sends `Request`s, each with an id that is
unique on its connection; the host answers every `Fill` with exactly one `Filled` or `Failed` carrying the same id,
after any number of `Draft`s when it was asked to `watch`. All text is Unicode with LF, CRLF or CR exactly as the
document has it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from midspan_engine.errors import InputError

PROTOCOL_VERSION = 4
"""Raised when a message changes incompatibly."""

Priority = Literal["typed", "several", "prefetch"]
"""How urgent a fill is: after a key, several candidates that somebody asked for, a guess of what comes next."""

# How a front end asks as long as its user has set nothing; what is measured is asked for in the same way.

SHOWN_CONFIDENCE = 0.15
"""From which confidence editors show a suggestion; a fill that cannot reach it any more ends early.

Of 500 one-line gaps of files by themselves, of packages that no suite uses, 24 % reach it, and 36 % of these are exact.
At 0.1 it would be 35 % and 30 %, at 0.25 14 % and 46 %, at 0.4 7 % and 64 % (`midspan eval calibrate`).
"""
WORKSPACE_TOKENS = 400_000
"""Of a workspace's files that are looked at, some 1.2 MB of code: 24 bytes each, 10 MB in all. Chosen."""
ONE_LINE_TOKENS = 32
"""Slots of a gap on one line: 99 % of the lines of held-out Python files take at most 32 tokens."""
SEVERAL_LINES_FACTOR = 2
"""How much larger the gap of several lines is than that of one; the engine cuts it to what its checkpoint was trained
on. Chosen.
"""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a gap now, for an edit or a hole: the start of its canvas, and what stays if nothing is better."""

    text: str
    single_line: bool = True


class Fill(msgspec.Struct, frozen=True, tag="fill", kw_only=True):
    """Asks for the gaps between pinned text parts.

    `parts` holds at least two strings; one gap lies between each two. The first part is the prefix (an empty string
    at the start of a file), the last the suffix. A newer fill of the same document on the same connection replaces this
    one, running or not, which is then answered at once with a silence; a prefetch replaces prefetches only.
    """

    id: int
    document: str
    """Names the document (its URI or path): the engine keeps the encoder's KV cache per client and document."""
    parts: tuple[str, ...]
    workspace: str = ""
    """Names the files that the client has lent and that may be looked at besides; empty for none."""
    file: str = ""
    """Under which name the document itself is lent among them, so that it is left out."""
    language: str = "python"
    """LSP language id; a language that the checkpoint was not trained on is answered with a reasoned silence."""
    single_line: bool = True
    """Forbids line breaks in the gaps."""
    max_tokens: int = ONE_LINE_TOKENS
    """Slots of each gap; surplus slots are contracted away."""
    n_candidates: int = 1
    deadline_ms: float | None = None
    """Milliseconds from receipt (or from when the checkpoint is loaded, if later) after which the best draft so far is
    the answer; None waits for the stop rule."""
    min_confidence: float = 0.0
    """Candidates below this confidence (0..1) are dropped; none left means silence."""
    suffix_is_cut: bool = False
    """True where the document goes on behind the last part, which otherwise ends where the file ends."""
    seed: int = 0
    priority: Priority = "typed"
    """Which of the waiting fills run first; a running prefetch is given up for any other fill."""
    watch: bool = False
    """Sends a `Draft` after every pass over the gap."""
    held: tuple[Held, ...] = ()
    """What each gap holds now, one for each; empty for a plain fill. With it the answer has one candidate, in which a
    gap that nothing better than `min_confidence` was found for holds what it held; its gaps may take several canvases
    in turn, and it neither replaces nor is replaced by a plain fill of its document.
    """
    strength: float = 1.0
    """Which share of what the gaps hold is denoised anew, 0..1: the tokens that the model finds least likely first."""
    instruction: str = ""
    """What to change, in the user's words; a checkpoint that follows none answers with a reasoned silence."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Withdraws a `Fill`; it is answered at once with an empty `Filled` whose silence is "cancelled"."""

    id: int


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Drops whatever the engine keeps for a document that was closed. Has no answer."""

    document: str


class Lend(msgspec.Struct, frozen=True, tag="lend", kw_only=True):
    """Lends the text of a file, in which the engine looks for what a gap beside it repeats. Has no answer.

    It stays until the client leaves, lends another text of the document, or an empty one to take it back. Checkpoints
    that look nowhere else, and texts beyond what there is room for, leave it out.
    """

    workspace: str
    file: str
    """Its name in the workspace."""
    language: str = "python"
    """LSP language id; what a checkpoint does not know is left out."""
    text: str


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """Asks for an `EngineStatus`."""

    id: int
    client: str = ""
    """How the client wants to be called in the status, such as the name of its editor; empty leaves it as it is."""


class Report(msgspec.Struct, frozen=True, tag="report", kw_only=True):
    """Tells what a client has counted and why it was silent, for the status; the newest counts. Has no answer."""

    counts: dict[str, int] = {}
    """Answers by what became of them, suggestions by what the user did with them."""
    silences: tuple[str, ...] = ()
    """The last reasons, oldest first; no text of a document."""
    counter: str = ""
    """Names who counts: reports of one counter go on from each other, whichever connection they come on. Empty leaves
    it at the process.
    """


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """Sets after how many minutes without a fill the host leaves. Has no answer."""

    minutes: float


def idle_seconds(minutes: float) -> float:
    """Returns a time without a fill in seconds. Raises InputError for one after which no engine could leave."""
    if not minutes > 0:  # nor is NaN
        raise InputError(f"an engine cannot leave after {minutes} idle minutes; give more than 0")
    return minutes * 60


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Asks the host to end all work and exit. Has no answer: the connection closes."""


Request = Fill | Cancel | Forget | Lend | StatusRequest | Report | Idle | Shutdown


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One way to fill all gaps of a request."""

    gaps: tuple[str, ...]
    """The text of each gap, in order; the suffix is never part of it."""
    confidence: float
    """Calibrated as far as the checkpoint is, 0..1."""
    confidences: tuple[float, ...] = ()
    """Of each gap alone; of what is edited, 0 where nothing was changed."""
    complete: bool = True
    """False for the confident part of a draft cut off by the deadline."""

    @property
    def text(self) -> str:
        """The text of the first gap."""
        return self.gaps[0]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What one `Fill` cost."""

    ms: float = 0.0
    """Milliseconds from receipt by the engine to the answer."""
    steps: int = 0
    """Decoder passes."""
    encoder_steps: int = 0
    """Passes of the encoder alone over the gap; where it is in doubt a decoder pass follows."""
    carried_steps: int = 0
    """Passes that an older fill of the document had made when it was replaced, and whose canvas this one went on from;
    counted in neither of the above."""
    decoder_ms: float = 0.0
    encoder_ms: float = 0.0
    """For the context alone."""
    n_prompt: int = 0
    """Tokens of context that the encoder holds for this request."""
    n_encoded: int = 0
    """Tokens of them that had to be encoded now; the others came from the cache."""
    n_canvas: int = 0
    """Slots of the canvas."""


class Filled(msgspec.Struct, frozen=True, tag="filled", kw_only=True):
    """Answers a `Fill`: candidates, best first, or none and the reason for the silence."""

    id: int
    candidates: tuple[Candidate, ...] = ()
    silence: str | None = None
    stats: Stats = Stats()


class Failed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """Answers any request that could not be carried out; the host lives on, unless this is final."""

    id: int
    message: str
    is_input: bool = False
    """True when the request itself was at fault (exit status 2), False for our own failure (1)."""
    is_final: bool = False
    """True when the host ends with this, because its model is of no use any more; the next fill needs a new host."""


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """One canvas slot of a draft."""

    text: str
    pinned: bool
    accepted: bool
    entropy: float
    """Nats; 0 for a pinned slot."""


class Draft(msgspec.Struct, frozen=True, tag="draft", kw_only=True):
    """Shows the canvas after a pass over its gaps."""

    id: int
    step: int
    """Passes so far, of encoder and decoder."""
    slots: tuple[Slot, ...]
    share: float = 0.0
    """How much of the request is settled, 0..1."""


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One client that the host serves."""

    name: str
    """As the client calls itself; empty for one that did not say."""
    pid: int
    """0 where the system does not tell."""
    connected_s: float
    n_fills: int
    n_waiting: int
    """Fills that are not answered yet."""
    report: Report = Report()
    """What the client last told of itself."""


class EngineStatus(msgspec.Struct, frozen=True, tag="engine_status", kw_only=True):
    """Answers a `StatusRequest`."""

    id: int
    version: str
    pid: int
    checkpoint: str
    device: str
    state: str
    """"loading", "ready", "busy" or "failed"."""
    error: str | None = None
    """Why the checkpoint could not be loaded, when `state` is "failed"."""
    progress: float = 1.0
    """How much of the loading is done, 0..1."""
    weights: str = ""
    """How the engine was told to hold a large model's experts: one of `midspan_engine.commands.WEIGHTS`."""
    budget: str = ""
    """What memory the model takes of what is free, in one line, and how its experts are held; known before its weights
    are read.
    """
    loading_quiet_s: float = 0.0
    """Seconds since the loading got further. Nobody ends one that hangs: how long a disk may take is not known."""
    rss_bytes: int = 0
    """Resident memory of the process."""
    device_bytes: int = 0
    """Memory held on an accelerator."""
    cache_bytes: int = 0
    """Of one or the other, what the documents' KV caches take."""
    uptime_s: float = 0.0
    idle_s: float = 0.0
    """After so long without a fill the host leaves."""
    last_failure: str | None = None
    """The last failure that was not the fault of a request."""
    n_parameters: int = 0
    n_documents: int = 0
    n_files: int = 0
    """Files of workspaces that are looked at beside the documents."""
    is_up_to_date: bool = True
    """False while files that were lent have still to be taken in."""
    n_fills: int = 0
    n_waiting: int = 0
    """Fills in the queue, the running one not counted."""
    counts: dict[str, int] = {}
    """Answers by what became of them."""
    clients: tuple[ClientStatus, ...] = ()
    gone: dict[str, dict[str, int]] = {}
    """What clients that have left had counted, summed by name."""
    instructions: bool = False
    """Whether the checkpoint follows instructions; False while it is loading."""
    languages: tuple[str, ...] = ()


Reply = Filled | Failed | Draft | EngineStatus
