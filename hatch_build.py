"""What a wheel carries besides the package, in `wsbench/shipped`: the engine, and what a checkout has at its top. An editable
installation, which is a checkout, needs none of it.

With cargo-zigbuild at hand the engine runs on glibc 2.28 and newer, else on what it was built on; the wheel's tag says which.
WSBENCH_ENGINE names an engine that has been built on this machine: none is built for the wheel then. WSBENCH_ARCH=aarch64 builds
for that, with cargo-zigbuild.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = "2.28"
CARRIED = ("servers", "experiments", "sessions", "protocol")


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        engine, tag = build_engine(root)
        revision = root / "engine" / "target" / "revision"
        revision.parent.mkdir(parents=True, exist_ok=True)
        revision.write_text(revision_of(root))
        carried = {engine: "wsbench-engine", revision: "revision", **{root / file: file for file in files_of(root)}}
        build_data["force_include"] |= {str(file): f"wsbench/shipped/{name}" for file, name in carried.items()}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def build_engine(root: Path) -> tuple[Path, str]:
    """The engine without its debugging information, and the platform it runs on, as wheels name it."""
    arch = os.environ.get("WSBENCH_ARCH") or platform.machine()
    if built := os.environ.get("WSBENCH_ENGINE"):
        return Path(built).resolve(), f"linux_{arch}"
    target = f"{arch}-unknown-linux-gnu"
    zig = shutil.which("cargo-zigbuild", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    build = [zig, "zigbuild", "--target", f"{target}.{GLIBC}"] if zig else ["cargo", "build", "--target", target]
    environment = {
        **os.environ,
        "CARGO_PROFILE_RELEASE_STRIP": "debuginfo",
        # One cannot tell by a wheel where it was built.
        "RUSTFLAGS": f"--remap-path-prefix={root}=. --remap-path-prefix={Path.home()}=~",
        "CARGO_TARGET_DIR": str(root / "engine" / "target" / "wheel"),
    }
    manifest = str(root / "engine" / "Cargo.toml")
    subprocess.run([*build, "--release", "--locked", "--quiet", "--manifest-path", manifest], check=True, env=environment)
    engine = root / "engine" / "target" / "wheel" / target / "release" / "wsbench-engine"
    return engine, f"manylinux_{GLIBC.replace('.', '_')}_{arch}" if zig else f"linux_{arch}"


def files_of(root: Path) -> list[str]:
    """What git has of it: no builds."""
    return git(root, "ls-files", "--cached", "--others", "--exclude-standard", "--", *CARRIED).splitlines()


def revision_of(root: Path) -> str:
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    return git(root, "rev-parse", "HEAD").strip() + (" with local changes" if changed else "") + "\n"


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout
