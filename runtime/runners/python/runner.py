"""The Python runner: an interpreter that is kept as it is after its imports, and runs one hook of a script a call.

`<controller> compile <file>` makes bytecode of the script on stdin. `<controller> <hook> <file>` runs the bytecode in
/hook/.code, calls the script's function for the hook with the request on stdin, and writes the answer to stdout.
What the script prints goes to stderr, which is the log. A number behind the file is the budget that a call before used up: an
error stops this one on its way, and says where.
"""

# Whatever scripts may import is imported here, before the snapshot: at a call nothing is read from a disk.
import _strptime
import ast
import base64
import binascii
import calendar
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import datetime
import decimal
import difflib
import encodings.ascii
import encodings.idna
import encodings.latin_1
import encodings.utf_8
import enum
import fnmatch
import fractions
import functools
import gc
import hashlib
import heapq
import hmac
import html
import io
import ipaddress
import itertools
import json
import linecache
import logging
import marshal
import math
import numbers
import operator
import os
import posixpath
import pprint
import random
import re
import secrets
import shlex
import statistics
import string
import struct
import sys
import textwrap
import time
import traceback
import types
import typing
import unicodedata
import urllib.parse
import uuid
import zlib

import yaml

from wit_world import exports

HOOK = "/hook/"
HOOKS = ("sync", "finalize", "customize")

# Bytes of an error's message, lines of a traceback, and lines of the stack: before the stack of the sandbox ends.
MAX_MESSAGE = 1024
# What costs a script nothing to import, as the book lists it.
IMPORTED = (
    "base64 calendar collections contextlib copy dataclasses datetime decimal difflib enum fnmatch fractions functools hashlib "
    "heapq hmac html io ipaddress itertools json logging math operator os posixpath pprint random re secrets shlex statistics "
    "string struct textwrap time traceback types typing unicodedata urllib.parse uuid yaml zlib"
)

# Characters of a path in an answer, and the levels that the server reads.
MAX_PATH = 200
MAX_NESTING = 127
MAX_TRACEBACK = 20
MAX_DEPTH = 400
# Errors of a group that are told.
MAX_CAUSES = 5

MAGIC = b"metahook 1 " + sys.version.split()[0].encode() + b"\n"


class ScriptError(Exception):
    """What is wrong with a script, in words that name its file and line."""


class Stopped(BaseException):
    """The script would go on for too long. Its argument is the line that ran most often."""


# Instructions that a line of a script takes while it is counted: those of few lines are more.
INSTRUCTIONS = 10_000


def stop_within(budget, file):
    """Stops a script that goes on for long. `budget`: instructions."""
    path = HOOK + file
    left = budget // INSTRUCTIONS
    ran = {}

    def line(frame, event, arg):
        nonlocal left
        if event == "line":
            ran[frame.f_lineno] = ran.get(frame.f_lineno, 0) + 1
            left -= 1
        if left < 0:
            raise Stopped(max(ran, key=ran.get))
        return line

    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_filename == path else None)


def stub(name, **members):
    """A module in the place of one that serves a network, which a hook has not."""
    module = types.ModuleType(name, "A stub: a hook needs no server.")
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


class BaseHTTPRequestHandler:
    """Handles nothing: the hook's methods are called directly."""


class HTTPServer:
    """Serves nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def serve_forever(self, *args, **kwargs):
        pass

    def server_close(self):
        pass

    def shutdown(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass


HTTP = {
    "BaseHTTPRequestHandler": BaseHTTPRequestHandler,
    "SimpleHTTPRequestHandler": BaseHTTPRequestHandler,
    "HTTPServer": HTTPServer,
    "ThreadingHTTPServer": HTTPServer,
}
http = stub("http", __path__=[])
http.server = stub("http.server", **HTTP)
stub("BaseHTTPServer", **HTTP)


class LazyRandom(random.Random):
    """The numbers of `random`, begun anew from the call's own when a script first asks for some."""

    begun = False

    def begin(self):
        LazyRandom.begun = True
        self.seed(int.from_bytes(os.urandom(32), "big"))

    def random(self):
        if not LazyRandom.begun:
            self.begin()
        return super().random()

    def getrandbits(self, k):
        if not LazyRandom.begun:
            self.begin()
        return super().getrandbits(k)


def reseed():
    """Gives the functions of `random` to a generator that begins with the call."""
    lazy = LazyRandom(0)
    for name in random.__all__:
        method = getattr(lazy, name, None)
        if callable(method) and not isinstance(getattr(random, name), type):
            setattr(random, name, method)
    random._inst = lazy
    LazyRandom.begun = False


def main(hook, file):
    if hook == "compile":
        write(1, MAGIC + marshal.dumps(compile(read(0), HOOK + file, "exec", dont_inherit=True)))
        return
    code = os.open(HOOK + ".code", os.O_RDONLY)
    write(1, respond(hook, file, read(code), read(0)))


def respond(hook, file, code, request):
    """The bytes of the answer."""
    if not code.startswith(MAGIC):
        raise ScriptError(f"{file}: its bytecode is of another runner")
    answer, line = call(hook, file, marshal.loads(code[len(MAGIC) :]), loads(request))
    error = None
    try:
        written = dumps(answer).encode()
        if not may_differ(written):
            return written
    except (TypeError, ValueError, RecursionError) as raised:
        error = raised
    found = misfit(answer)
    if found is None and error is None:
        return written
    if found is None:
        raise error
    path, what, kind = found
    why = "which the server does not read exactly" if kind == "OverflowError" else "which JSON does not have"
    kind = kind or type(error).__name__
    raise ScriptError(f"{file}:{line}: {kind}: {hook} returned {what} at {path}, {why}")


loads = json.loads
dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


# Keys that JSON's encoder writes of others than strings, such as "1" and "null", and how they begin.
ODD_KEY = re.compile(rb"(?:-?[0-9][-+.0-9e]*|null|true|false)\Z")
BEGINNINGS = frozenset(b"-0123456789ntf")
# An integer that the server may not read exactly.
LONG = re.compile(rb"[0-9]{19}")
LEAST, LARGEST = -(1 << 63), (1 << 64) - 1

# The bytes of numbers, quotes, and the last letters of null, true and false as one byte: such keys then have one end.
AS_ONE = bytes.maketrans(b'0123456789.-"lus', b"eeeeeeeeeeeeeeee")
END_OF_KEY = b"eee:"
LONG_AS_ONE = b"e" * 19


def may_differ(written):
    """Whether an answer as it is written may be read as another one: it has keys that may be no strings, or many digits in a row.

    Each answer pays for it, so it looks at bytes, and at no values.
    """
    flat = written.translate(AS_ONE)
    if LONG_AS_ONE in flat and LONG.search(written):
        return True
    at = flat.find(END_OF_KEY)
    while at >= 0:
        start = written.rfind(b'"', 0, at + 2) + 1
        if written[start] in BEGINNINGS and ODD_KEY.match(written[start : at + 2]):
            return True
        at = flat.find(END_OF_KEY, at + 3)
    return False


def misfit(answer):
    """Path and kind of the first value of an answer that JSON does not have, or that is read as another one; its error."""
    todo = [(answer, (), ())]
    while todo:
        value, keys, around = todo.pop()
        if value is None:
            continue
        if isinstance(value, str):
            if not value.isascii() and not is_text(value):
                return path_to(keys), "a str with half of a surrogate pair", None
        elif isinstance(value, int):
            if not LEAST <= value <= LARGEST:
                return path_to(keys), "an integer of more than 64 bits", "OverflowError"
        elif isinstance(value, float):
            if not math.isfinite(value):
                return path_to(keys), str(value), None
        elif not isinstance(value, (dict, list, tuple)):
            return path_to(keys), article(type(value).__name__), None
        elif id(value) in around:
            return path_to(keys), f"a {type(value).__name__} that holds itself", None
        elif len(around) > MAX_NESTING:
            return path_to(keys), "one more level of nesting", None
        else:
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        return path_to(keys), f"a key of type {type(key).__name__}{shown(key)}", "TypeError"
                    if not key.isascii() and not is_text(key):
                        return path_to(keys), "a key with half of a surrogate pair", None
                inner = value.items()
            else:
                inner = enumerate(value)
            below = (*around, id(value))
            todo.extend([(item, (keys, key), below) for key, item in inner][::-1])
    return None


def path_to(keys):
    """The way to a value: the key or the index of each level, the last one outermost."""
    steps = []
    while keys:
        keys, key = keys
        steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(steps)).removeprefix(".")[-MAX_PATH:] or "its top"


def article(name):
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def shown(key):
    """A key that JSON's encoder would write as a string."""
    if type(key) in (int, bool):
        return f" ({key})" if LEAST <= key <= LARGEST else ""
    return f" ({key})" if type(key) in (float, type(None)) else ""


def is_text(value):
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def call(hook, file, code, request):
    """Runs the script, and its function or method for the hook; the answer, and the line of the function."""
    module = types.ModuleType("hook")
    names = module.__dict__
    names["__file__"] = HOOK + file
    sys.modules["hook"] = module
    exec(code, names)
    function = find(names, hook, file)
    answer = function(*arguments(function, file, request))
    line = unwrapped(function).__code__.co_firstlineno
    if type(answer) is not dict and not isinstance(answer, collections.abc.Mapping):
        found = "None" if answer is None else f"a {type(answer).__name__}"
        raise ScriptError(f"{file}:{line}: {hook} returned {found}, not an object (dict)")
    return answer, line


def find(names, hook, file):
    """A function of the script, else the method of a class of its own."""
    function = names.get(hook)
    if callable(function) and not isinstance(function, type):
        return function
    classes = [it for it in names.values() if isinstance(it, type) and it.__module__ == "hook"]
    for cls in classes:
        if callable(getattr(cls, hook, None)):
            return getattr(instance(cls), hook)
    found = [name for name, it in names.items() if isinstance(it, types.FunctionType) and it.__module__ == "hook"]
    found += [f"{cls.__name__}.{name}" for cls in classes for name in vars(cls) if callable(getattr(cls, name))]
    found = ", ".join(name for name in found if not name.split(".")[-1].startswith("__"))[:200] or "none"
    raise ScriptError(
        f"{file}: no function or class method named {hook} (found: {found}); define def {hook}(parent, children)"
    )


def instance(cls):
    init = cls.__init__
    if init is object.__init__ or takes_nothing(init):
        return cls()
    return cls.__new__(cls)


def takes_nothing(init):
    code = getattr(init, "__code__", None)
    return code is not None and code.co_argcount - len(init.__defaults__ or ()) <= 1 and not code.co_kwonlyargcount


def unwrapped(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function = getattr(function, "__func__", function)
    if hasattr(function, "__code__"):
        return function
    return type(function).__call__


def arguments(function, file, request):
    """The arguments of a hook: by the names of its parameters, else by their number."""
    get = request.get
    target = get("parent", get("object"))
    attached = get("children", get("attachments"))
    named = {
        "request": request,
        "parent": target,
        "object": target,
        "children": attached,
        "attachments": attached,
        "related": get("related", {}),
        "finalizing": get("finalizing", False),
        "controller": get("controller"),
        "settings": get("settings"),
    }
    plain = unwrapped(function)
    code = plain.__code__
    count = code.co_argcount
    names = code.co_varnames[:count]
    if plain is not function and names:
        names = names[1:]  # self
    defaults = len(plain.__defaults__ or ())
    # A parameter that has a default and no known name keeps its default.
    while names and defaults and names[-1] not in named:
        names = names[:-1]
        defaults -= 1
    if names and all(name in named for name in names):
        return [named[name] for name in names]
    by_number = {1: (request,), 2: (target, attached), 3: (target, attached, named["related"])}
    if not names:
        return by_number[3] if code.co_flags & 4 else ()  # *args, or nothing at all
    if len(names) in by_number:
        return by_number[len(names)]
    raise ScriptError(
        f"{file}:{code.co_firstlineno}: {plain.__name__} takes {len(names)} parameters: "
        "name them request, parent, children, related, finalizing, controller or settings, "
        "or take one (the request), two (parent, children) or three (parent, children, related)"
    )


def read(fd):
    chunks = []
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def write(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def text(error):
    """The message of an error in one line."""
    try:
        return str(error)[:MAX_MESSAGE].replace("\n", " ")
    except Exception as second:
        # The author's own __str__.
        return f"its text cannot be made ({type(second).__name__})"


def named(error):
    return f"{type(error).__name__}: {text(error)}"


def explain(error, file):
    """The traceback of a script, and as the last line its place and its message."""
    path = HOOK + file
    if isinstance(error, ScriptError):
        return str(error)
    kind = type(error).__name__
    if isinstance(error, Stopped):
        return f"{file}:{error.args[0]}: Stopped"
    if isinstance(error, SyntaxError) and error.filename == path:
        line = f": {error.text.strip()[:200]}" if error.text else ""
        return f"{file}:{error.lineno}: {kind}: {error.msg}{line}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    lines = [f"  {file}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames][-MAX_TRACEBACK:]
    place = f"{file}:{frames[-1].lineno}" if frames else file
    if isinstance(error, SystemExit):
        return "\n".join([*lines, f"{place}: {kind}: the script ended itself with {error.code!r}; return an object instead"])
    message = text(error)
    if isinstance(error, BaseExceptionGroup):
        some = [named(inner) for inner in error.exceptions[:MAX_CAUSES]]
        message += f": {'; '.join(some)}{'; ...' if len(error.exceptions) > MAX_CAUSES else ''}"
    if error.__cause__ is not None:
        message += f" (from {named(error.__cause__)})"
    if isinstance(error, ModuleNotFoundError):
        message += (
            "; see \"What a script may import\" in the book's page about Python for how to bring others; "
            f"there are files that the hook mounts, and {', '.join(IMPORTED.split())}"
        )
    return "\n".join([*lines, f"{place}: {kind}: {message}" if message else f"{place}: {kind}"])


class Run(exports.Run):
    def run(self):
        # Sockets, threads and processes are not there, and say so by themselves.
        sys.stdout = sys.stderr
        file = "script"
        try:
            file = sys.argv[2]
            sys.setrecursionlimit(MAX_DEPTH)
            if len(sys.argv) > 3:
                stop_within(int(sys.argv[3]), file)
            main(sys.argv[1], file)
        except BaseException as error:
            sys.setrecursionlimit(MAX_DEPTH + 200)
            fail(explain(error, file))


def fail(text):
    sys.stderr.flush()
    write(2, (text + "\n").encode("utf-8", "replace"))
    sys.stderr = None
    os._exit(1)


WARM = """
import json

class Warm:
    def finalize(self, parent, children):
        return {"status": {}, "children": [], "finalized": True}

def sync(parent, children):
    pods = [{"kind": "Pod", "metadata": {"name": "%s-%d" % (parent["metadata"]["name"], n)}} for n in range(2)]
    return {"status": {"pods": len(children["Pod.v1"])}, "children": pods}
"""


def log_without_time():
    """The clock that log records are made with stands still: the server's log has the time, and a script that asks for it
    is called at every trigger."""
    still = types.SimpleNamespace(**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")})
    still.time = lambda: 0.0
    still.time_ns = lambda: 0
    logging.time = still


def warm_up():
    """Runs what a call runs until nothing in the interpreter changes by it any more."""
    code = MAGIC + marshal.dumps(compile(WARM, HOOK + "warm.py", "exec"))
    pod = '{"kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"n":[1,2.5,null,true,false]}}'
    request = f'{{"parent":{pod},"children":{{"Pod.v1":{{"a":{pod},"b":{pod}}}}},"finalizing":false}}'.encode()
    for _ in range(200):
        for hook in ("sync", "finalize"):
            respond(hook, "warm.py", code, request)
    datetime.datetime.strptime("2000-01-01T00:00:00Z", "%Y-%m-%dT%H:%M:%SZ").isoformat()
    yaml.safe_load("a: [1, b]")
    for wrong in ("def", "{}['a']"):
        try:
            exec(compile(wrong, "warm.py", "exec"))
        except Exception as error:
            explain(error, "warm.py")
    sys.modules.pop("hook", None)
    reseed()
    gc.collect()
    fill_holes()
    # A call is short: what it makes is gone with its instance.
    gc.freeze()
    gc.disable()


held = []


def fill_holes():
    """Takes what is free between the objects of the snapshot, so that objects of a call lie side by side: each page that a
    call writes to is copied first."""
    top = id(bytes(4 << 20))
    for size in range(16, 513, 16):
        for _ in range(100_000):
            block = bytes(max(size - 40, 0)) if size > 40 else object()
            held.append(block)
            if id(block) > top:
                break


log_without_time()
warm_up()
