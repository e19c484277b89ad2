"""An environment of its own for a tool that we are compared with, never one of our dependencies.

Each lives in `build/peers/NAME`, which git ignores, and is made by `make bench` or `make peers`: a
virtual environment, and pip with this repository's constraints, so that torch is the same CPU build
on both sides.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class PeerEnvironment:
    """What is installed, and where.

    Attributes:
        name: of its folder.
        requirements: as for pip.
        unpinned: packages whose line in `constraints.txt` does not hold here.
    """

    name: str
    requirements: tuple[str, ...]
    unpinned: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is."""
        return ROOT / "build" / "peers" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it was built to the end, from these requirements and with our torch."""
        return self._mark.is_file() and self._mark.read_text() == self._fingerprint()

    def build(self) -> None:
        """Makes it where it is not there yet; takes minutes and about 2 GB of disk.

        Raises:
            SystemExit: pip's last line, where it cannot be built.
        """
        if self.ready:
            return
        print(f"building {self.folder.relative_to(ROOT)}: takes some minutes once", flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(self._constraints()) + "\n")
        install = ["-m", "pip", "install", "--quiet", "-c", str(constraints), *self.requirements]
        for command in ([sys.executable, "-m", "venv", str(self.folder)], [self.python, *install]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
                reason = next((x for x in reversed(lines) if "ERROR" in x), lines[-1])
                raise SystemExit(
                    f"SKIPPED: the environment {self.name} cannot be built ({reason}); is there a "
                    "package index?"
                )
        self._mark.write_text(self._fingerprint())

    @property
    def _mark(self) -> Path:
        return self.folder / "installed"

    def _constraints(self) -> list[str]:
        pinned = (line.strip() for line in CONSTRAINTS.read_text().splitlines())
        return [line for line in pinned if line.split("==")[0].lower() not in self.unpinned]

    def _fingerprint(self) -> str:
        torch = [line for line in self._constraints() if line.startswith("torch==")]
        facts = "\n".join([*self.requirements, *torch])
        return hashlib.sha256(facts.encode()).hexdigest()


AUTO_CIRCUIT = PeerEnvironment(
    "auto-circuit", ("auto-circuit==1.0.1", "attrs", "transformer-lens==3.9.0")
)
NATIVE_BRIDGE = PeerEnvironment(
    "native-bridge",
    ("transformer-lens>=4.3,<5", "pandas", "scipy", "jaxtyping"),
    unpinned=("transformer-lens",),
)

if __name__ == "__main__":
    for environment in (AUTO_CIRCUIT, NATIVE_BRIDGE):
        environment.build()
