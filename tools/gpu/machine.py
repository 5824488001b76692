"""The machine that tools/gpu_check runs on: what it is, and its clocks."""

import os
import pathlib
import re
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU_FACTS = ("name", "uuid", "driver_version", "compute_cap", "memory.total", "power.limit", "ecc.mode.current", "clocks.max.sm",
             "clocks.max.mem")
CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def output_of(*command):
    """What the command prints, None where it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def query_gpu(fields):
    """The fields of nvidia-smi for the first GPU, by name; those that it does not know are left out."""
    facts = {}
    for field in fields:  # one by one: a field that this driver lacks would spoil the others
        value = output_of("nvidia-smi", "-i", "0", f"--query-gpu={field}", "--format=csv,noheader")
        if value:
            facts[field] = value
    return facts


def describe_host():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    return {"cpu": model.group(1) if model else "unknown", "cores": os.cpu_count(), "kernel": os.uname().release}


class ClockSampler:
    """Reads clocks, temperature and power of the first GPU every half second while it is entered."""

    def __enter__(self):
        self.samples = []
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader,nounits", "--loop-ms=500"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None
            return self
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        return self

    def _read(self):
        for line in self.process.stdout:
            try:
                self.samples.append([float(value) for value in line.split(",")])
            except ValueError:
                pass  # "[N/A]"

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join()

    def summary(self):
        """Minimum and maximum of each field over the samples."""
        columns = list(zip(*self.samples))
        return {field: {"min": min(c), "max": max(c)} for field, c in zip(CLOCKS, columns)}
