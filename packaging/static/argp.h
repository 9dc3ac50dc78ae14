/* The parts of glibc's argp.h that elfutils' lib/ includes; musl has no argp. Only programs of elfutils call argp, and the
 * build makes none of them. Names and values are glibc's (argp/argp.h). */
#ifndef _ARGP_H
#define _ARGP_H

#include <errno.h>
#include <stdio.h>

#define ARGP_ERR_UNKNOWN E2BIG
#define ARGP_HELP_SEE 0x04
#define OPTION_ARG_OPTIONAL 0x1
#define OPTION_HIDDEN 0x2

typedef int error_t;

struct argp_state {
	char *name;
};

struct argp_option {
	const char *name;
	int key;
	const char *arg;
	int flags;
	const char *doc;
	int group;
};

struct argp {
	const struct argp_option *options;
	error_t (*parser)(int key, char *arg, struct argp_state *state);
	const char *args_doc;
	const char *doc;
	const void *children;
	char *(*help_filter)(int key, const char *text, void *input);
	const char *argp_domain;
};

void argp_help(const struct argp *argp, FILE *stream, unsigned flags, char *name);

#endif
