#!/usr/bin/env bash
# Old and older CPUs through qemu-user: a Haswell runs the operator goldens, a Nehalem gets a message and no illegal
# instruction. Exit code 77 (skipped) where qemu-user is not installed.
set -u
perigee=$1
golden_ops=$2
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static) || exit 77

"$qemu" -cpu Haswell "$perigee" verify goldens "$golden_ops" --threads 1 > /dev/null 2>&1 || { echo "the operator goldens fail on a Haswell"; exit 1; }

said=$("$qemu" -cpu Nehalem "$perigee" doctor 2>/dev/null)
code=$?
[ "$code" -eq 1 ] || { echo "doctor on a Nehalem: expected exit code 1, found $code"; exit 1; }
case $said in
    *"lacks AVX2"*"x86-64-v3"*) ;;
    *) echo "doctor on a Nehalem does not say what is missing: $said"; exit 1 ;;
esac
said=$("$qemu" -cpu Nehalem "$perigee" bench roofline 2>&1 >/dev/null)
code=$?
[ "$code" -eq 2 ] || { echo "bench on a Nehalem: expected exit code 2, found $code"; exit 1; }
