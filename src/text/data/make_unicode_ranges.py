"""Writes ../unicode_ranges.inc from unicode_classes.json: disjoint code point ranges with their class bits."""
import json
import os

here = os.path.dirname(os.path.abspath(__file__))
classes = json.load(open(os.path.join(here, "unicode_classes.json")))["classes"]


def points(*names):
    return {p for name in names for first, last in classes[name] for p in range(first, last + 1)}


han = points("Han")
bits = [
    han,
    points("Lu", "Lt", "Lm", "Lo", "M") - han,
    points("Ll", "Lm", "Lo", "M") - han,
    points("Lu", "Lt", "Lm", "Lo", "Ll"),
    points("N"),
    points("White_Space"),
    points("python_isspace"),
]
table = [sum(1 << i for i, members in enumerate(bits) if p in members) for p in range(0x110000)]
ranges, first = [], 0
for p in range(1, 0x110001):
    if p == 0x110000 or table[p] != table[first]:
        if table[first]:
            ranges.append((first, p - 1, table[first]))
        first = p
with open(os.path.join(here, "..", "unicode_ranges.inc"), "w") as out:
    out.write("// Made by data/make_unicode_ranges.py from data/unicode_classes.json (Unicode 16.0); do not edit.\n")
    for i in range(0, len(ranges), 6):
        out.write(" ".join("{0x%x, 0x%x, %d}," % r for r in ranges[i : i + 6]) + "\n")
