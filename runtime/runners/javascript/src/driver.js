// Between a hook's call and its script: finds the function, gives it what it asks for, and says what went wrong.
(say, random, source) => {
    "use strict";

    // Bytes of an error's message, and lines of a traceback.
    const MAX_MESSAGE = 1024;
    const MAX_TRACEBACK = 20;
    // Errors of a group that are shown.
    const MAX_CAUSES = 5;

    const VALUES = {
        __proto__: null,
        request: (request) => request,
        parent: (request) => request.parent ?? request.object,
        object: (request) => request.object ?? request.parent,
        children: (request) => request.children ?? request.attachments,
        attachments: (request) => request.attachments ?? request.children,
        related: (request) => request.related,
        finalizing: (request) => request.finalizing,
        controller: (request) => request.controller,
        settings: (request) => request.settings,
    };
    const BY_NUMBER = [[], ["request"], ["parent", "children"], ["parent", "children", "related"]];
    const FORMS = "(request), (parent, children) and (parent, children, related) are called, and any of the names " +
        "request, parent, object, children, attachments, related, finalizing, controller, settings";

    // An error that is told as it is written.
    class Refusal {
        constructor(message) {
            this.message = message;
        }
    }

    // The call's hook and file, and the line of the function.
    let hook, file, line;

    const bounded = (text) => {
        if (text.length * 3 <= MAX_MESSAGE) return text;
        let bytes = 0;
        let end = 0;
        for (const character of text) {
            const point = character.codePointAt(0);
            bytes += point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
            if (bytes > MAX_MESSAGE - 3) return text.slice(0, end) + "...";
            end += character.length;
        }
        return text;
    };
    const flat = (text) => bounded(String(text)).replace(/\s*[\r\n]+\s*/g, " ");

    // What the language calls an object; a Proxy may throw.
    const tag = (value) => {
        try {
            return Object.prototype.toString.call(value);
        } catch {
            return "[object]";
        }
    };

    // What console prints of a value.
    const shown = (value) => {
        if (typeof value === "string") return value;
        if (value instanceof Error) return `${value.name}: ${value.message}\n${value.stack}`.trimEnd();
        if (typeof value === "object" && value !== null || typeof value === "bigint") {
            try {
                const json = JSON.stringify(value, (_, inner) => typeof inner === "bigint" ? `${inner}n` : inner);
                return typeof value === "bigint" ? `${value}n` : json ?? String(value);
            } catch {
                return tag(value);
            }
        }
        return String(value);
    };
    const line_of = (values) => values.map(shown).join(" ");
    // A line of JSON has a level in the server's log.
    const levelled = (level) => (...values) => say(JSON.stringify({ level, message: line_of(values) }));
    const plain = (...values) => say(line_of(values));
    const hidden = (object, name, value) =>
        Object.defineProperty(object, name, { value, writable: true, configurable: true, enumerable: false });
    hidden(globalThis, "console", {
        log: plain,
        info: plain,
        debug: levelled("debug"),
        warn: levelled("warn"),
        error: levelled("error"),
    });
    hidden(Math, "random", random);
    Error.stackTraceLimit = MAX_TRACEBACK;

    // A function's parameters: its text up to the end of them.
    const SIMPLE = /^(?:async\s+)?(?:function\b\s*)?(?:[\w$]+\s*)?\(\s*((?:[\w$]+(?:\s*,\s*[\w$]+)*)?)\s*\)/;
    const SINGLE = /^(?:async\s+)?([\w$]+)\s*=>/;
    const BEGIN = /^(?:async\b\s*)?(?:function\b\s*)?\*?\s*(?:[\w$#]+|\[[^\]]*\]|"[^"]*"|'[^']*')?\s*\(/;

    const pieces = (text) => {
        const found = [];
        let depth = 0;
        let piece = "";
        for (let at = BEGIN.exec(text)?.[0].length ?? text.length; at < text.length; at++) {
            const character = text[at];
            if (character === "/" && text[at + 1] === "*") {
                at = text.indexOf("*/", at) + 1;
            } else if (character === "/" && text[at + 1] === "/") {
                at = text.indexOf("\n", at);
            } else if (character === '"' || character === "'" || character === "`") {
                const begin = at;
                for (at++; at < text.length && text[at] !== character; at++) if (text[at] === "\\") at++;
                piece += text.slice(begin, at + 1);
            } else if (depth === 0 && (character === "," || character === ")")) {
                if (piece.trim() !== "") found.push(piece.trim());
                piece = "";
                if (character === ")") break;
            } else {
                if ("([{".includes(character)) depth++;
                if (")]}".includes(character)) depth--;
                piece += character;
            }
        }
        return found;
    };

    const parameters = (called) => {
        const text = Function.prototype.toString.call(called);
        const simple = SIMPLE.exec(text) ?? SINGLE.exec(text);
        if (simple !== null) {
            return simple[1] === "" ? [] : simple[1].split(",").map((name) => ({ name: name.trim() }));
        }
        return pieces(text).map((piece) => {
            if (piece.startsWith("...")) return { rest: true };
            // One that takes the request apart is a parameter without a name.
            if (piece[0] === "{" || piece[0] === "[") return {};
            const [, name, initial] = /^([^\s=]+)\s*(=)?/.exec(piece);
            return { name, optional: initial !== undefined };
        });
    };

    const values = (called, request) => {
        const all = parameters(called);
        const required = all.filter((one) => !one.optional && !one.rest);
        if (all.length === 1 && all[0].rest) return BY_NUMBER[3].map((name) => VALUES[name](request));
        const given = all.filter((one) => !one.rest);
        if (all.length > 0 && required.every((one) => one.name in VALUES)) {
            return given.map((one) => VALUES[one.name]?.(request));
        }
        // It may look into `arguments`.
        if (all.length === 0) return [request];
        const names = BY_NUMBER[required.length];
        if (names === undefined || required.length === 0) {
            throw new Refusal(
                `${file}:${line}: TypeError: ${hook} has ${required.length} parameters without a default, and only ${FORMS}`,
            );
        }
        let at = 0;
        return given.map((one) => one.optional ? undefined : VALUES[names[at++]](request));
    };

    const is_function = (value) => typeof value === "function";
    const is_class = (value) => is_function(value) && /^class\b/.test(Function.prototype.toString.call(value));
    const lines_of = (value) => (is_function(value) ? value.lineNumber : undefined) ?? 0;

    // A value that has a name outside of functions, in a script.
    const lexical = (name) => {
        try {
            return (0, eval)(name);
        } catch {
            return undefined;
        }
    };

    // All that the file has, by name: what a module exports, or what a script defines.
    const everything = (namespace) => {
        if (namespace !== undefined) return Object.keys(namespace).map((name) => [name, namespace[name]]);
        const defined = source(file).matchAll(/^[ \t]*(?:class|const|let)\s+([\w$]+)/gm);
        const names = [...Object.keys(globalThis), ...[...defined].map((match) => match[1])];
        return [...new Set(names)].map((name) => [name, globalThis[name] ?? lexical(name)]);
    };

    const found = (all) => {
        const names = [];
        for (const [name, value] of all) {
            if (is_class(value)) {
                const methods = Object.getOwnPropertyNames(value.prototype ?? {}).filter((one) => one !== "constructor");
                names.push(...methods.map((one) => `${value.name || name}.${one}`));
            } else if (is_function(value)) {
                names.push(name);
            } else if (name === "default" && typeof value === "object" && value !== null) {
                names.push(...Object.keys(value).filter((one) => is_function(value[one])).map((one) => `default.${one}`));
            }
        }
        return names.length > 0 ? bounded(names.join(", ")) : "nothing";
    };

    // The function of the hook, and what it is a method of.
    const find = (namespace) => {
        const direct = namespace !== undefined ? namespace[hook] : globalThis[hook] ?? lexical(hook);
        if (is_function(direct)) return [direct, undefined];
        const other = namespace?.default;
        if (is_function(other) && other.name === hook && !is_class(other)) return [other, undefined];
        if (typeof other === "object" && other !== null && is_function(other[hook])) return [other[hook], other];
        const all = everything(namespace);
        const classes = all
            .map(([, value]) => value)
            .filter((value) => is_class(value) && is_function(value.prototype?.[hook]))
            .sort((one, two) => lines_of(one) - lines_of(two));
        if (classes.length > 0) {
            const [first] = classes;
            const self = first.length === 0 ? new first() : Object.create(first.prototype);
            return [self[hook], self];
        }
        throw new Refusal(
            `${file}: no function or class method named ${hook} (found: ${found(all)}); ` +
                `define export function ${hook}(parent, children)`,
        );
    };

    const begin = (the_hook, the_file) => {
        hook = the_hook;
        file = the_file;
        line = 1;
    };

    const call = (namespace, request) => {
        const [called, self] = find(namespace);
        line = lines_of(called) || 1;
        return Reflect.apply(called, self, values(called, request));
    };

    const refuse_answer = (what) => {
        throw new Refusal(`${file}:${line}: TypeError: ${hook} returned ${what}, not an object`);
    };

    const check = (answer) => {
        if (Array.isArray(answer)) refuse_answer("an array");
        if (answer === null || answer === undefined) refuse_answer(String(answer));
        if (typeof answer !== "object") refuse_answer(`a ${typeof answer}`);
        return answer;
    };

    const with_article = (name) => `${/^[AEIO]/.test(name) ? "an" : "a"} ${name}`;

    // What a value is that JSON does not write as what it is; nothing where it does, or says itself how. Objects that the
    // language makes plain are not asked about, nor are those of a class.
    const strange = (value) => {
        if (typeof value === "bigint" || is_function(value)) {
            if (is_function(value.toJSON)) return undefined;
            return typeof value === "bigint" ? "a BigInt" : "a function";
        }
        if (typeof value !== "object") return `a ${typeof value}`;
        const name = tag(value).slice("[object ".length, -1);
        if (name === "Number") return Number.isFinite(Number(value)) ? undefined : `a Number of ${Number(value)}`;
        // A Proxy of a plain object has the name of that, or none.
        return ["", "Object", "Array", "String", "Boolean"].includes(name) ? undefined : bounded(with_article(name));
    };

    // What JSON writes in the place of an object with a method toJSON; nothing of a Date that is none.
    const written = (value, key) => {
        const json = value.toJSON(key);
        return value instanceof Date && json === null ? [] : [json];
    };

    const unfit = (what, path) => {
        const place = path === "" ? "its top" : path;
        throw new Refusal(`${file}:${line}: TypeError: ${hook} returned ${what} at ${place}, which JSON does not have`);
    };

    // An integer that may have been another one in the request.
    const rounded = (number, path) => {
        const place = path === "" ? "" : ` at ${path}`;
        throw new Refusal(
            `${file}:${line}: RangeError: ${hook} returned the integer ${number}${place}, and JavaScript rounds those ` +
                `beyond ${Number.MAX_SAFE_INTEGER}: return it as a string, or write the hook in Python or Rust`,
        );
    };

    // The lines of a stack that are the script's, the innermost first.
    const frames = (stack) =>
        String(stack).split("\n").filter((frame) => frame.includes(`${file}:`)).slice(0, MAX_TRACEBACK);
    const line_in = (frame) => {
        const end = frame.slice(frame.lastIndexOf(`${file}:`) + file.length + 1);
        return /^\d+/.exec(end)?.[0];
    };

    // A property of an error: the author's own getter may throw, too.
    const property = (error, name) => {
        try {
            return error[name];
        } catch {
            return `its ${name} cannot be read`;
        }
    };
    const worded = (error) => {
        const message = flat(property(error, "message"));
        return message === "" ? flat(property(error, "name")) : `${flat(property(error, "name"))}: ${message}`;
    };
    const cause = (error) => {
        const inner = property(error, "cause");
        if (inner === undefined) return "";
        return ` (from ${inner instanceof Error ? worded(inner) : flat(shown(inner))})`;
    };

    // The errors of an AggregateError.
    const group = (error) => {
        const inner = error instanceof AggregateError ? property(error, "errors") : undefined;
        if (!Array.isArray(inner) || inner.length === 0) return "";
        const some = inner.slice(0, MAX_CAUSES).map((one) => one instanceof Error ? worded(one) : flat(shown(one)));
        return `: ${bounded(some.join("; "))}${inner.length > MAX_CAUSES ? "; ..." : ""}`;
    };

    const report = (thrown) => {
        if (thrown instanceof Refusal) return thrown.message;
        if (!(thrown instanceof Error)) return `${file}:${line}: Uncaught: ${flat(shown(thrown))}`;
        const made = `at ${thrown.constructor?.name} (`;
        const all = frames(property(thrown, "stack"));
        // What makes an error of the author's own is not where it is thrown.
        const from = all.findIndex((frame) => !frame.trim().startsWith(made));
        const traceback = all.slice(Math.max(from, 0));
        const innermost = traceback.length > 0 ? line_in(traceback[0]) : undefined;
        const last = `${file}:${innermost ?? line}: ${worded(thrown)}${group(thrown)}${cause(thrown)}`;
        return [...traceback.map((frame) => bounded(frame)), last].join("\n");
    };

    // Neither a script nor a module: of the two errors, that of the one that the text wants to be.
    const refuse = (script, module, the_file, text) => {
        begin("compile", the_file);
        const thrown = /^\s*(?:export|import)\b/m.test(text) ? module : script;
        const at = line_in(frames(thrown.stack)[0] ?? "") ?? 1;
        const offending = bounded((text.split("\n")[at - 1] ?? "").trimEnd());
        return `${offending}\n${file}:${at}: ${thrown.name}: ${flat(thrown.message)}`.trim();
    };

    const pending = () =>
        `${file}:${line}: Error: ${hook} waits for a promise that nothing settles: a hook has no timers and no network`;

    // What a first call makes is made before the snapshot.
    const warm = (request) => {
        begin("sync", "warm.js");
        const answer = check(call({ sync: (parent, children) => ({ status: { of: parent, and: children } }) }, request));
        line = 1;
        return answer;
    };

    const nothing = () => refuse_answer("what is no JSON");
    return { begin, call, check, nothing, pending, refuse, report, rounded, strange, unfit, warm, written };
};
