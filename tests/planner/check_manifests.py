#!/usr/bin/env python3
"""Checks emitted Kubernetes manifests against the API schemas, and compose files by shape.

usage: check_manifests.py FOLDER   (searched for kubernetes/*.yaml and compose/*.yaml)
Exit code 77 (skipped) without the PyPI packages kubernetes-validate and PyYAML. LeaderWorkerSet is a custom resource:
its own fields are checked here after the public type definition, its pod templates as pods.
"""
import pathlib
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LWS = {
    "replicas": int, "startupPolicy": str, "rolloutStrategy": dict, "networkConfig": dict, "leaderWorkerTemplate": dict,
}
LWS_TEMPLATE = {"size": int, "restartPolicy": str, "leaderTemplate": dict, "workerTemplate": dict, "subGroupPolicy": dict}
RESTART = {"RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default"}


def fail(where, text):
    print(f"{where}: {text}")
    return 1


def check_fields(where, value, fields):
    errors = 0
    for key, item in value.items():
        if key not in fields:
            errors += fail(where, f"unknown field {key}")
        elif not isinstance(item, fields[key]):
            errors += fail(where, f"{key}: expected {fields[key].__name__}")
    return errors


def validate(where, document, version):
    try:
        kubernetes_validate.validate(document, version, strict=True)
        return 0
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return fail(where, str(error)[:300])


def check_document(where, document, version):
    if document["kind"] != "LeaderWorkerSet":
        return validate(where, document, version)
    spec = document["spec"]
    errors = check_fields(where, spec, LWS)
    template = spec["leaderWorkerTemplate"]
    errors += check_fields(where, template, LWS_TEMPLATE)
    if template["restartPolicy"] not in RESTART:
        errors += fail(where, f"restartPolicy {template['restartPolicy']}")
    if "workerTemplate" not in template:
        errors += fail(where, "no workerTemplate")
    for name in ("leaderTemplate", "workerTemplate"):
        if name in template:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template[name]["spec"]}
            errors += validate(f"{where} {name}", pod, version)
    return errors


def check_compose(where, document):
    errors = 0
    for name, service in document["services"].items():
        for key in ("image", "command", "devices", "volumes", "environment"):
            if key not in service:
                errors += fail(where, f"{name}: no {key}")
        if not all(isinstance(word, str) for word in service["command"]):
            errors += fail(where, f"{name}: a command word is no string")
        if not all(isinstance(value, str) for value in service["environment"].values()):
            errors += fail(where, f"{name}: an environment value is no string")
    return errors


def main():
    root = pathlib.Path(sys.argv[1])
    version = kubernetes_validate.latest_version()
    errors = count = 0
    for path in sorted(root.rglob("*.yaml")):
        if path.parent.name == "kubernetes":
            for document in yaml.safe_load_all(path.read_text()):
                errors += check_document(str(path.relative_to(root)), document, version)
                count += 1
        elif path.parent.name == "compose":
            errors += check_compose(str(path.relative_to(root)), yaml.safe_load(path.read_text()))
            count += 1
    print(f"{count} documents, {errors} errors (Kubernetes {version})")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
