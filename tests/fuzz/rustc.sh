#!/bin/sh
# Compiler of the workspace's own crates for libFuzzer: they report which branches were taken and what was compared.
# Their dependencies stay as all other tests have them.
exec "$@" -Copt-level=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
