#!/usr/bin/env bash
# Objects compiled for newer instructions may not define weak symbols: the linker could choose such a copy of a shared
# inline function for code that runs on every machine. DW.ref.* is data: the address of the exception personality.
set -u
bad=$(nm -C --defined-only "$@" 2>/dev/null | grep -E ' [WVu] ' | grep -v ' DW\.ref\.')
[ -z "$bad" ] || { printf 'weak symbols in objects of an instruction-set path:\n%s\n' "$bad"; exit 1; }
