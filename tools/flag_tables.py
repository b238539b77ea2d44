#!/usr/bin/env python3
"""Makes the compact flag tables of src/planner/data/flags from full ones.

usage: flag_tables.py FULL_TABLE.json... --out DIR

A full table is a static reading of an engine's argument parser (names, types, choices, bounds, help). The compact
one keeps what a checker needs; the next engine version is one more file in the folder.
"""
import argparse
import json
import pathlib


def compact_field(field):
    out = {}
    types = [t for t in field.get("types", [])]
    if not types and field.get("parser") in ("int", "str", "float"):
        types = [field["parser"]]
    if types:
        out["types"] = types
    # Of an enumeration the reading gives values, but the command line takes names.
    enum = any(t.startswith("enum:") for t in types)
    if "choices" in field and not enum:
        out["choices"] = [str(c) for c in field["choices"] if c is not None]
        # Plug-ins add names of their own to open lists, quantisations and devices.
        out["closed"] = field.get("choices_closed", True)
    for key in ("bounds", "aliases", "kind", "negatable", "nargs"):
        if field.get(key):
            out[key] = field[key]
    if field.get("action") in ("store_true", "DeprecatedStoreTrueAction"):
        out["kind"] = "bool"
    if field.get("action") in ("BooleanOptionalAction", "argparse.BooleanOptionalAction"):
        out["kind"] = "bool"
        out["negatable"] = True
    default = field.get("default")
    if isinstance(default, (bool, int, float, str)):
        out["default"] = default
    if field.get("internal"):
        out["internal"] = True
    return out


def fields(table):
    return {name: compact_field(field) for name, field in table.items()}


def compact(full):
    out = {"package": full["package"], "version": full["version"]}
    if "flags" in full:
        out["flags"] = fields({k: v for k, v in full["flags"].items() if k.startswith("-")})
    if "json_config_keys" in full:
        out["json_config_keys"] = {name: fields(keys) for name, keys in full["json_config_keys"].items()}
    if "registries" in full:
        out["registries"] = full["registries"]
    environment = full.get("environment", {})
    out["environment"] = {
        name: ({"default": field["default"]} if isinstance(field.get("default"), (bool, int, float)) else {})
        for name, field in environment.items()
    }
    if "additional_config" in full:
        out["unknown_keys_rejected"] = full["unknown_keys_rejected"]
        out["additional_config"] = fields(full["additional_config"])
        out["key_to_class"] = full["key_to_class"]
        out["classes"] = {
            name: fields(full["older_style_nested_keys"].get(name, keys)) for name, keys in full["classes"].items()
        }
        out["derived_or_internal_keys"] = full["derived_or_internal_keys"]
        out["kv_connectors"] = full["kv_connectors"]
        out["kv_connector_extra_config"] = sorted(full["kv_connector_extra_config"])
    return out


def dump(table):
    """One line an entry, so that a new version shows as a readable difference."""
    parts = []
    for key, value in table.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    for path in args.tables:
        full = json.loads(path.read_text())
        if "package" not in full:
            continue
        (args.out / path.name).write_text(dump(compact(full)))


if __name__ == "__main__":
    main()
