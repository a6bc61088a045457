"""Everything a server fetches is pinned: lock files with checksums, exact versions of dependencies and of Maven's plugins."""

import json
import re
import tomllib
import xml.etree.ElementTree as ElementTree

import pytest

from wsbench.host.installation import ROOT

SERVERS = ROOT / "servers"
POM = {"m": "http://maven.apache.org/POM/4.0.0"}
#: The plugins that `mvn clean package` runs by itself.
USUAL = {
    *("maven-clean-plugin", "maven-resources-plugin", "maven-compiler-plugin", "maven-surefire-plugin"),
    "maven-jar-plugin",
}


def files(name: str):
    # What was built holds copies, and what was fetched has pins of its own.
    found = [
        file
        for file in sorted(SERVERS.rglob(name))
        if not {"build", "target", "node_modules"} & set(file.relative_to(SERVERS).parts)
    ]
    assert found, name
    return pytest.mark.parametrize("file", found, ids=[str(file.relative_to(SERVERS)) for file in found])


@files("Cargo.toml")
def test_every_crate_is_locked(file):
    locked = tomllib.loads((file.parent / "Cargo.lock").read_text())["package"]
    assert all("checksum" in package for package in locked if "source" in package)
    assert "--locked" in (file.parent / "server.toml").read_text()


@files("go.mod")
def test_every_go_module_has_its_sum(file):
    sums = (file.parent / "go.sum").read_text()
    for module, version in re.findall(r"^(?:require )?\s*(\S+\.\S+/\S+) (v\S+)", file.read_text(), re.MULTILINE):
        assert re.search(rf"^{re.escape(module)} {re.escape(version)} h1:", sums, re.MULTILINE), module


@files("package.json")
def test_every_npm_package_is_locked(file):
    asked = json.loads(file.read_text()).get("dependencies", {})
    locked = json.loads((file.parent / "package-lock.json").read_text())["packages"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked.values()), asked
    for name, version in asked.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in package for name, package in locked.items() if name)


@files("requirements.txt")
def test_every_python_package_has_its_version_and_checksums(file):
    text = file.read_text()
    assert "--find-links" not in text
    wanted = re.split(r"\n(?=\S)", text.strip())
    wanted = [one for one in wanted if not one.startswith("#")]
    assert all(re.match(r"[\w.\[\],-]+==\S+ \\\n\s+--hash=sha256:", one) for one in wanted), wanted
    assert "--require-hashes" in (file.parent / "server.toml").read_text()


@files("pom.xml")
def test_every_maven_dependency_and_plugin_has_one_version_and_jars_have_one_date(file):
    pom = ElementTree.parse(file)
    properties = {tag.tag.rpartition("}")[2] for tag in pom.iterfind(".//m:properties/*", POM)}
    managed = pom.find(".//m:dependencyManagement", POM) is not None
    plugins = {plugin.findtext("m:artifactId", None, POM) for plugin in pom.iterfind(".//m:plugin", POM)}
    assert plugins >= USUAL
    assert "project.build.outputTimestamp" in properties
    for one in [*pom.iterfind(".//m:dependency", POM), *pom.iterfind(".//m:plugin", POM)]:
        name, version = one.findtext("m:artifactId", None, POM), one.findtext("m:version", None, POM)
        by_bom = version is None and managed and "starter" in name
        named = version is not None and re.fullmatch(r"\$\{([\w.]+)\}", version)
        exact = version is not None and re.fullmatch(r"\d[\w.-]*", version) and "SNAPSHOT" not in version
        assert by_bom or exact or (named and named.group(1) in properties), f"{name} {version}"
