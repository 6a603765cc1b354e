// A hook's reader of JSON. It skips what the hook does not need, and strings stay as they are written in the request, with
// their escapes, so that they are printed into the answer as they are.
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A part of the request.
typedef struct {
	const char *start;
	size_t length;
} text;

static inline _Noreturn void fail(const char *why)
{
	fputs(why, stderr);
	fputc('\n', stderr);
	exit(1);
}

// All of the standard input, with a zero at its end.
static inline char *read_all(void)
{
	size_t room = 1 << 16, length = 0;
	char *bytes = malloc(room);
	for (;;) {
		if (!bytes)
			fail("no memory for the request");
		ssize_t got = read(STDIN_FILENO, bytes + length, room - length - 1);
		if (got < 0)
			fail("the request cannot be read");
		if (got == 0)
			break;
		length += (size_t)got;
		if (room - length == 1)
			bytes = realloc(bytes, room *= 2);
	}
	bytes[length] = 0;
	return bytes;
}

static inline const char *skip_space(const char *at)
{
	while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
		at++;
	return at;
}

// From a string's first quote to behind its last one.
static inline const char *skip_string(const char *at)
{
	for (at++; *at != '"'; at++) {
		if (*at == '\\')
			at++;
		if (!*at)
			fail("the request ends in a string");
	}
	return at + 1;
}

static inline const char *skip_value(const char *at)
{
	int depth = 0;
	do {
		switch (*at) {
		case 0:
			fail("the request ends in a value");
		case '"':
			at = skip_string(at);
			break;
		case '{':
		case '[':
			depth++;
			at++;
			break;
		case '}':
		case ']':
			depth--;
			at++;
			break;
		case ',':
		case ':':
		case ' ':
		case '\t':
		case '\n':
		case '\r':
			at++;
			break;
		default:
			at += strcspn(at, ",:]} \t\n\r");
		}
	} while (depth > 0);
	return at;
}

// Reads the next member of an object. `at` is at its brace, later behind a member; false at the object's end.
static inline bool next_member(const char **at, text *key, text *value)
{
	const char *start = skip_space(*at);
	if (*start != '{' && *start != ',')
		return false;
	start = skip_space(start + 1);
	if (*start != '"')
		return false;
	const char *end = skip_string(start);
	*key = (text){ start + 1, (size_t)(end - start) - 2 };
	end = skip_space(end);
	if (*end != ':')
		fail("a member of the request has no value");
	value->start = skip_space(end + 1);
	*at = skip_value(value->start);
	value->length = (size_t)(*at - value->start);
	return true;
}

// The value of a member; an empty text where the object lacks it, and where it is no object.
static inline text member(text object, const char *name)
{
	if (object.length == 0 || *object.start != '{')
		return (text){ 0 };
	text key, value;
	const char *at = object.start;
	while (next_member(&at, &key, &value)) {
		if (key.length == strlen(name) && memcmp(key.start, name, key.length) == 0)
			return value;
	}
	return (text){ 0 };
}

static inline int count_members(text object)
{
	if (object.length == 0 || *object.start != '{')
		return 0;
	int count = 0;
	text key, value;
	const char *at = object.start;
	while (next_member(&at, &key, &value))
		count++;
	return count;
}

// What is between the quotes of a string; the default where there is none, or null.
static inline text string_or(text value, const char *none)
{
	if (value.length == 0 || (value.length == 4 && memcmp(value.start, "null", 4) == 0))
		return (text){ none, strlen(none) };
	if (*value.start != '"')
		fail("a value is not a string where one should be");
	return (text){ value.start + 1, value.length - 2 };
}

static inline bool is_true(text value)
{
	return value.length == 4 && memcmp(value.start, "true", 4) == 0;
}

// The arguments of `%.*s`.
#define TEXT(text) (int)(text).length, (text).start

// The request, from the standard input.
static inline text read_request(void)
{
	const char *start = skip_space(read_all());
	return (text){ start, strlen(start) };
}
