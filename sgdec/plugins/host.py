"""The plugin host: finds plugins of all kinds by name, and imports only those that a run names.

Names come from the entry points of the group ``sgdec``, each called ``KIND.NAME``; reading them imports no plugin.
Bundled and third-party plugins are found in the same way. If a plugin cannot be imported, for example because a
dependency is missing, only a run that names it fails.

If several plugins share a name, that of a plugin file comes first, so that the file keeps working when a later
version of sgdec bundles a plugin of the same name. Next is the bundled one, with a warning. ``NAME@DISTRIBUTION``
names any installed plugin; names of distributions are compared as in PEP 503.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, requires
from inspect import isroutine
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pluggy

from sgdec.errors import SgdecError, UsageError
from sgdec.optional import HOW
from sgdec.plugins import hookspecs
from sgdec.suggest import suggest

log = logging.getLogger(__name__)

HOOK_OF = {
    "predictor": "sgdec_predictors", "decoder": "sgdec_decoders", "model": "sgdec_models", "engine": "sgdec_engines",
    "utility": "sgdec_utilities",
}  # fmt: skip
"""By kind of plugin, the function of `sgdec.plugins.hookspecs`."""
KINDS = tuple(HOOK_OF)
BUNDLED = "sgdec"
"""The distribution whose plugins are always available; all others are third parties."""
HOOKS = tuple(HOOK_OF.values())
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""The form of a plugin's name: its options are ``--NAME.OPTION``."""
AT_DISTRIBUTION = re.compile(rf"({NAME.pattern})(?:@([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))?")
"""The form in which a run names a plugin: ``NAME`` or ``NAME@DISTRIBUTION``."""
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def name_of(plugin: str) -> str:
    """The name in ``NAME`` or ``NAME@DISTRIBUTION``, to which options belong.

    >>> name_of("regex@sgdec-foo")
    'regex'
    """
    return plugin.partition("@")[0]


def spelled_alike(plugin: str) -> str:
    """``NAME`` or ``NAME@DISTRIBUTION`` with the distribution in the form that PEP 503 compares.

    >>> spelled_alike("regex@Sgdec_Foo"), spelled_alike("my_regex")
    ('regex@sgdec-foo', 'my_regex')
    """
    name, at, distribution = plugin.partition("@")
    return f"{name}{at}{normal(distribution)}"


def normal(distribution: str) -> str:
    """The name of a distribution in the form that PEP 503 compares."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


class Entry(NamedTuple):
    """One name that a plugin offers."""

    kind: str
    name: str
    distribution: str
    """The distribution that provides it, or the path of a plugin file."""
    value: str
    """The name of the module with the hooks, or the path of a plugin file."""

    @property
    def of_file(self) -> bool:
        return self.distribution == self.value

    @property
    def whole_name(self) -> str:
        """``NAME@DISTRIBUTION``, which names this plugin even if others have its name."""
        return f"{self.name}@{self.distribution}"


class Host:
    """All plugins of one run.

    ``plugin_files``: modules to load besides the installed ones. ``autoload``: whether to include installed
    third-party plugins; None = yes, unless the environment has ``SGDEC_DISABLE_PLUGIN_AUTOLOAD=1``. Raises SgdecError
    for a plugin file that cannot be imported or has no plugin.

    >>> [entry.name for entry in Host(autoload=False).names("decoder") if entry.name == "beam"]
    ['beam']
    """

    def __init__(self, plugin_files: Sequence[str | Path] = (), autoload: bool | None = None) -> None:
        if autoload is None:
            autoload = os.environ.get("SGDEC_DISABLE_PLUGIN_AUTOLOAD", "") in ("", "0")
        self.third_parties: dict[Entry, None] = {}
        """The loaded third-party plugins, in order of loading."""
        self._warnings: set[str] = set()
        self._manager = _Manager("sgdec")
        self._manager.add_hookspecs(hookspecs)
        self._entries = [entry for entry in _installed() if autoload or entry.distribution == BUNDLED]
        for path in plugin_files:
            self._entries += self._offered_by_file(Path(path))

    def names(self, kind: str | None = None) -> list[Entry]:
        """The plugins of one kind or of all, sorted by name; a name offered twice is listed twice."""
        kinds = KINDS if kind is None else (kind,)
        return sorted(
            (entry for entry in self._entries if entry.kind in kinds),
            key=lambda entry: (KINDS.index(entry.kind), entry.name, entry.distribution),
        )

    def load(self, kind: str, name: str) -> type[Any]:
        """The class of the plugin ``NAME`` or ``NAME@DISTRIBUTION``; no other plugin is imported.

        Warns, once for each name, if the bundled plugin is chosen and others have its name. Raises UsageError if no
        plugin or several plugins have this name, SgdecError for a broken plugin.
        """
        entry = self.find(kind, name)
        if "@" not in name and (warning := self.shadowed(entry)) is not None and warning not in self._warnings:
            self._warnings.add(warning)
            log.warning(warning)
        if entry.distribution != BUNDLED:
            self.third_parties[entry] = None
        return self._class(entry)

    def find(self, kind: str, name: str) -> Entry:
        """The plugin ``NAME`` or ``NAME@DISTRIBUTION``. Raises UsageError if there is none, or more than one."""
        found = self.named(kind, name)
        if not found:
            own, _, distribution = name.partition("@")
            offering = [entry.distribution for entry in self.named(kind, own)]
            if offering:
                raise UsageError(
                    f"no {kind} {own!r} of a distribution {distribution!r}. {suggest(distribution, offering)}"
                )
            raise UsageError(self._unknown(kind, own))
        files = [entry for entry in found if entry.of_file]
        bundled = [entry for entry in found if entry.distribution == BUNDLED]
        chosen = files or bundled or found
        if len(chosen) > 1:
            raise UsageError(_clash(chosen))
        return chosen[0]

    def named(self, kind: str, name: str) -> list[Entry]:
        """All plugins that ``NAME`` or ``NAME@DISTRIBUTION`` can mean."""
        own, at, distribution = name.partition("@")
        found = [entry for entry in self.names(kind) if entry.name == own]
        return [e for e in found if normal(e.distribution) == normal(distribution)] if at else found

    def call(self, entry: Entry) -> str:
        """The text that names this plugin in a run: ``NAME`` if that is enough, else ``NAME@DISTRIBUTION``."""
        try:
            return entry.name if self.find(entry.kind, entry.name) == entry else entry.whole_name
        except UsageError:
            return entry.whole_name

    def shadowed(self, entry: Entry) -> str | None:
        """A warning that names the third-party plugins with the name of this bundled one; None if there are none."""
        same = self.named(entry.kind, entry.name)
        others = [other for other in same if other.distribution != BUNDLED and not other.of_file]
        if entry.distribution != BUNDLED or not others:
            return None
        have = "has another one" if len(others) == 1 else "have others"
        return (
            f"{entry.kind} {entry.name!r} is sgdec's own; {_listed(other.distribution for other in others)} {have}: "
            f"write {' or '.join(other.whole_name for other in others)} to use it."
        )

    def problems(self) -> Iterator[str]:
        """Import all plugins; yield one line for each entry that cannot be used."""
        for entry in self._entries:
            if entry.kind not in KINDS or not NAME.fullmatch(entry.name):
                expected = ", ".join(f"{kind}.NAME" for kind in KINDS)
                yield f"{entry.distribution}: entry point '{entry.kind}.{entry.name}': expected {expected}."
        clashes: set[str] = set()
        for entry in self.names():
            try:
                self.find(entry.kind, entry.name)
            except UsageError as error:
                if str(error) not in clashes:  # all entries of the name have it
                    clashes.add(str(error))
                    yield str(error)
            try:
                self._class(entry)
            except SgdecError as error:
                yield str(error)

    def _unknown(self, kind: str, name: str) -> str:
        if not self._entries:
            return f"no {kind} named {name!r}, and no plugins at all: sgdec is not installed (pip install .)."
        names = [entry.name for entry in self.names(kind)]
        elsewhere = [entry.kind for entry in self.names() if entry.name == name]
        note = f" ({name!r} is a {elsewhere[0]})" if elsewhere else ""
        *wrappers, inner = name.split("_")
        if wrappers and {*wrappers, inner} <= set(names):
            note += f" (wrappers are written with colons: {':'.join([*wrappers, inner])})"
        return f"no {kind} named {name!r}{note}. {suggest(name, names)}"

    def _class(self, entry: Entry) -> type[Any]:
        what = f"{entry.kind} {entry.name!r} of {entry.distribution}"
        try:
            plugin = self._plugin(entry)
            classes = self._classes(plugin, entry.kind)
        except KeyboardInterrupt:
            raise
        except SgdecError as error:
            raise SgdecError(f"{what}: {error}") from None
        except BaseException as error:  # a third-party module can raise anything, also SystemExit
            reason = _reason(error, entry.distribution)
            raise SgdecError(f"{entry.kind} {entry.name!r} is installed but did not import: {reason}") from error
        if entry.name not in classes:
            hook = f"{HOOK_OF[entry.kind]}() of {entry.value}"
            raise SgdecError(f"{what}: {hook} does not return it. {suggest(entry.name, classes)}")
        found = classes[entry.name]
        if not _is_a(entry.kind, found):
            raise SgdecError(f"{what}: {_not_a(entry.kind, found)}")
        from sgdec.plugins.surface import require_sound

        try:
            require_sound(found)
        except SgdecError as error:
            raise SgdecError(f"{what}: {error}") from None
        return found

    def _plugin(self, entry: Entry) -> Any:
        """The module of an entry; imported and registered at the first call."""
        plugin = self._manager.get_plugin(entry.value)
        if plugin is None:
            plugin = EntryPoint(entry.name, entry.value, "sgdec").load()
            self._register(plugin, entry.value)
        return plugin

    def _register(self, plugin: Any, name: str) -> None:
        _require_api(plugin)
        for function in dir(plugin):
            if function not in HOOKS and self._manager.parse_hookimpl_opts(plugin, function) is not None:
                raise SgdecError(f"unknown hook {function!r}. {suggest(function, HOOKS)}")
        self._manager.register(plugin, name)

    def _classes(self, plugin: Any, kind: str) -> dict[str, type[Any]]:
        """The classes that one plugin returns from the hook of one kind; SgdecError unless it is a dict of names."""
        hook = HOOK_OF[kind]
        others = [other for other in self._manager.get_plugins() if other is not plugin]
        answers = self._manager.subset_hook_caller(hook, others)()
        found = answers[0] if answers else {}
        if not isinstance(found, dict):
            raise SgdecError(f"{hook}() returned a {type(found).__name__}; expected a dict of names and classes.")
        for name in found:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise SgdecError(
                    f"{hook}() returned the name {name!r}; expected a letter or _, then letters, digits, _ and -."
                )
        return found

    def _offered_by_file(self, path: Path) -> list[Entry]:
        if not path.is_file():
            raise UsageError(f"--plugin-file {path}: no such file.")
        try:
            plugin = _import_file(path)
            self._register(plugin, str(path))
            offered = [(kind, name) for kind in KINDS for name in self._classes(plugin, kind)]
        except KeyboardInterrupt:
            raise
        except SgdecError as error:
            raise SgdecError(f"--plugin-file {path}: {error}") from None
        except BaseException as error:
            raise SgdecError(f"--plugin-file {path} did not import: {_reason(error, BUNDLED)}") from error
        if not offered:
            raise SgdecError(
                f"--plugin-file {path}: no plugin in it. Expected a function such as sgdec_predictors(), "
                "marked with @sgdec.hookimpl, that returns a dict of name to class."
            )
        return [Entry(kind, name, str(path), str(path)) for kind, name in offered]


class _Manager(pluggy.PluginManager):
    """Sees at once which names of a module are functions; only these can be hooks. pluggy is slower at it."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ModuleType) and not isroutine(vars(plugin).get(name)):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def install_hint(module: str, distribution: str = BUNDLED) -> str:
    """The command that installs a missing module by the smallest extra with it; "" if no extra declares the module.

    >>> install_hint("torch")
    ' (pip install "sgdec[nmt]")'
    >>> install_hint("kenlm")
    ' (pip install "sgdec[kenlm]", with a C++ compiler and cmake)'
    >>> install_hint("antigravity")
    ''
    """
    if distribution == BUNDLED and module in HOW:
        return f" ({HOW[module]})"
    try:
        requirements = requires(distribution) or []
    except PackageNotFoundError:
        return ""
    extras = [_EXTRA.search(requirement) for requirement in requirements]
    sizes = Counter(extra and extra[1] for extra in extras)
    wanted = {
        extra and extra[1]
        for requirement, extra in zip(requirements, extras, strict=True)
        if re.split(r"[^\w-]", requirement)[0].lower().replace("-", "_") == module.lower()
    }
    if not wanted:
        return ""
    name = None if None in wanted else min(wanted, key=lambda extra: (sizes[extra], extra))  # not "all"
    return f' (pip install "{distribution}{f"[{name}]" if name else ""}")'


def _installed() -> tuple[Entry, ...]:
    """The entries of all installed distributions. They are read again if a folder of ``sys.path`` has changed."""
    return _entries_in(tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=1)  # the metadata of every installed distribution are read: 10 to 50 milliseconds for each host
def _entries_in(folders: tuple[tuple[str, tuple[int, int] | None], ...]) -> tuple[Entry, ...]:
    names: dict[Distribution | None, str] = {None: "?"}  # cached, because .name parses a file at each access
    entries = []
    for point in entry_points(group="sgdec"):
        kind, _, name = point.name.partition(".")
        if point.dist is not None and point.dist not in names:
            names[point.dist] = point.dist.name
        entries.append(Entry(kind, name, names[point.dist], point.value))
    return tuple(entries)


def _changed(folder: str) -> tuple[int, int] | None:
    """Inode and time of change, which differ after something was installed into the folder; None if it is missing."""
    try:
        found = os.stat(folder or os.curdir)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _import_file(path: Path) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    name = "sgdec_plugin_file_" + re.sub(r"\W", "_", str(path.resolve().with_suffix("")))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("a plugin file is a Python module and ends in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _require_api(plugin: Any) -> None:
    """Raise ImportError if a module states another version of the protocol (``sgdec_api``) than `API`."""
    from sgdec.protocol import API

    stated = getattr(plugin, "sgdec_api", API)
    if stated != API:
        newer = isinstance(stated, int) and stated > API
        raise ImportError(
            f"its sgdec_api is {stated!r}, but this sgdec has version {API} of the protocol: "
            f"install {'a newer sgdec' if newer else 'another version of the plugin'}"
        )


def _is_a(kind: str, found: object) -> bool:
    from sgdec.decoder import Decoder
    from sgdec.protocol import BatchPredictor, Predictor
    from sgdec.utility import Utility

    if kind == "engine":
        from sgdec.corpus.engine import Engine

        return isinstance(found, type) and issubclass(found, Engine)
    bases = {
        "predictor": (Predictor, BatchPredictor), "decoder": (Decoder,), "model": (object,), "utility": (Utility,),
    }  # fmt: skip
    return isinstance(found, type) and issubclass(found, bases[kind])


def _not_a(kind: str, found: object) -> str:
    """The reason why an entry of a hook's dict is not a class of this kind."""
    from sgdec.plugins.surface import place

    if isinstance(found, type):
        return f"class {found.__qualname__}{place(found)} is not a subclass of sgdec's {kind.capitalize()}."
    return f"{HOOK_OF[kind]}() returned an object of type {type(found).__name__}; expected the class itself."


def _clash(entries: Sequence[Entry]) -> str:
    offered = _listed(entry.distribution for entry in entries)
    names = dict.fromkeys(entry.whole_name for entry in entries)
    if len(names) < len(entries) or any(entry.of_file for entry in entries):
        way_out = "Rename one in its plugin, or leave one out"
    else:
        way_out = f"Choose one: {' or '.join(names)}"
    return f"{entries[0].kind} {entries[0].name!r} is offered by {offered}. {way_out}."


def _listed(distributions: Iterable[str]) -> str:
    return " and ".join(distributions)


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Context manager for third-party code: exceptions that end the process, such as SystemExit, become SgdecError.

    KeyboardInterrupt and ordinary exceptions pass unchanged. ``what`` names the code in the error.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise SgdecError(f"{what}: {_reason(error, BUNDLED)}") from error


def _reason(error: BaseException, distribution: str) -> str:
    """The error of a third-party module in one line: the message, and the command to fix it or the file and line."""
    message = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError):
        hint = install_hint(error.name or "", distribution)
        if hint:
            return f"{message}{hint}."
    elif isinstance(error, SystemExit):
        message = f"it called sys.exit({message})"
    elif not isinstance(error, ImportError):
        message = f"{type(error).__name__}: {message}"
    return f"{message}{_place(error)}."


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its message names the file and line
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if frame.filename != __file__ and not _is_machinery(frame.filename)]
    return f" ({outside[-1].filename}, line {outside[-1].lineno})" if outside else ""


def _is_machinery(filename: str) -> bool:
    return "importlib" in filename or f"{os.sep}pluggy{os.sep}" in filename
