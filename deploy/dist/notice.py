#!/usr/bin/env python3
"""Gathers the licences of what the tarball holds: notice.py ROOT STAGE, with GO and JAVA_HOME in the environment.

Writes STAGE/NOTICE and STAGE/licenses. A part whose licence is not known ends it: nothing is given away without.
"""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as tree
import zipfile
from pathlib import Path

REPOSITORY = Path.home() / ".m2" / "repository"
IS_LICENCE = re.compile(r"^(META-INF/)?([^/]*/)*(licen[cs]e|notice|copying|unlicense)[^/]*$", re.IGNORECASE)
# Licences that ask for nothing but their own text, which lies in licenses/.
APACHE = re.compile(r"apache", re.IGNORECASE)


def fail(text):
    sys.exit(f"licences: {text}")


def pom_of(jar):
    """The jar's POM in Maven's local repository: by its name, which there is in one folder only."""
    stem = jar.name.removesuffix(".jar")
    found = [path for path in REPOSITORY.glob(f"**/{glob_safe(stem)}.pom")]
    if not found:
        # A jar with a classifier has the POM without it.
        found = [path for path in REPOSITORY.glob("**/*.pom") if stem.startswith(path.stem + "-")]
    return max(found, key=lambda path: len(path.stem), default=None)


def glob_safe(text):
    return re.sub(r"([\[\]*?])", r"[\1]", text)


def licences_of(pom):
    """Names of the licences that a POM tells, or its parent's, or theirs."""
    while pom is not None:
        root = tree.parse(pom).getroot()
        names = [node.text.strip() for node in root.iterfind("{*}licenses/{*}license/{*}name") if node.text]
        if names:
            return names
        parent = root.find("{*}parent")
        if parent is None:
            return []
        group, artifact, version = (parent.findtext("{*}" + part).strip() for part in ("groupId", "artifactId", "version"))
        path = REPOSITORY / group.replace(".", "/") / artifact / version / f"{artifact}-{version}.pom"
        pom = path if path.exists() else None
    return []


def java(root, stage, licences, extra):
    lines = []
    own = [node.text.strip().replace("/", "-") for node in tree.parse(root / "pom.xml").getroot().iterfind("{*}modules/{*}module")]
    for jar in sorted((next((stage / "server").iterdir()) / "lib").glob("*.jar")):
        if any(re.fullmatch(re.escape(name) + r"-[0-9][^-]*\.jar", jar.name) for name in own):
            continue
        names = licences_of(pom_of(jar))
        target = licences / "java" / jar.stem
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if IS_LICENCE.match(name) and not name.endswith((".class", "/")):
                    target.mkdir(parents=True, exist_ok=True)
                    (target / name.replace("META-INF/", "").replace("/", "_")).write_bytes(archive.read(name))
        brought = next((path for path in extra.glob("*.txt") if jar.name.startswith(path.stem)), None)
        if brought:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(brought, target / "LICENSE")
        if not names and not target.exists():
            fail(f"{jar.name} tells none")
        if not target.exists() and not any(APACHE.search(name) for name in names):
            fail(f"{jar.name}: the text of {names} is missing (remedy: deploy/dist/licenses/)")
        lines.append(f"{jar.stem}: {' or '.join(names) or 'see licenses/java/' + jar.stem}")
    return lines


def go(folder, packages, licences):
    """The modules that programs are made of, each with its licence."""
    command = [os.environ["GO"], "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", *packages]
    environment = {**os.environ, "GOWORK": "off", "CGO_ENABLED": "0"}
    lines = []
    listed = subprocess.run(command, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout
    for path, version, place in sorted({tuple(line.split("\t")) for line in listed.splitlines() if line}):
        target = licences / "go" / f"{path.replace('/', '_')}@{version}"
        for file in sorted(Path(place).iterdir()):
            if file.is_file() and re.match(r"(licen[cs]e|copying|notice|patents)", file.name, re.IGNORECASE):
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target / file.name)
        if not target.exists():
            fail(f"the Go module {path} tells none")
        lines.append(f"{path} {version}")
    return lines


def main():
    root, stage = (Path(word).resolve() for word in sys.argv[1:])
    licences = stage / "licenses"
    licences.mkdir()
    shutil.copyfile(root / "LICENSE", licences / "Apache-2.0.txt")
    parts = {
        "Java libraries of the server (server/); licences that ask for it are in licenses/java": java(root, stage, licences, Path(__file__).parent / "licenses"),
        "Go modules of engine, agent, CLI and image builder (node/)": go(root / "node", ["./cmd/..."], licences),
        "Go modules of runsc (runsc/); gVisor is changed by the patches in node/runsc of Atoll's source": go(root / "node/runsc", ["./cmd/..."], licences),
        "Go modules of the Go kernel (agent image)": go(root / "kernels/go", ["."], licences),
    }
    goroot = subprocess.run([os.environ["GO"], "env", "GOROOT"], cwd=root / "node", check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    shutil.copyfile(Path(goroot) / "LICENSE", licences / "go" / "LICENSE-of-Go-itself")
    shutil.copyfile(root / "kernels/js/THIRD-PARTY.txt", licences / "javascript-kernels.txt")
    release = dict(line.split("=", 1) for line in (stage / "java/release").read_text().splitlines() if "=" in line)
    text = [
        "Atoll is licensed under the Apache License 2.0 (LICENSE). With it come, each under its own licence:",
        "",
        f"Java {release['JAVA_VERSION']} ({release.get('IMPLEMENTOR', 'OpenJDK')}), in java/",
        "  OpenJDK: GPL 2 with the Classpath Exception, see java/legal; source: https://github.com/adoptium and https://openjdk.org",
        "JavaScript in the kernels (agent image): licenses/javascript-kernels.txt",
    ]
    for title, lines in parts.items():
        text += ["", title, *(f"  {line}" for line in lines)]
    for image in sorted((stage / "images-built").glob("*.json")):
        name = re.sub(r"-[0-9a-f]{32}$", "", image.stem)
        text += [
            "",
            f"The sandbox image {name}: Debian packages, whose licences are in the image at /usr/share/doc/PACKAGE/copyright and whose source",
            "is at https://snapshot.debian.org; npm and pip packages with their licences beside them. All of them: images-built/" + image.name,
        ]
    (stage / "NOTICE").write_text("\n".join(text) + "\n")


main()
