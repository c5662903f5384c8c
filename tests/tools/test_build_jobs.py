"""tools/build_jobs.sh: how many compilers run at once."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "build_jobs.sh"
CORES = os.sysconf("SC_NPROCESSORS_ONLN")


class BuildJobs(unittest.TestCase):
    def jobs(self, free_kb, limit="max", max_jobs=None):
        """(jobs, what was said)."""
        environment = {name: value for name, value in os.environ.items() if name != "MAX_JOBS"}
        if max_jobs is not None:
            environment["MAX_JOBS"] = max_jobs
        with tempfile.TemporaryDirectory() as folder:
            meminfo, cgroup = Path(folder) / "meminfo", Path(folder) / "memory.max"
            meminfo.write_text(f"MemTotal:       99000000 kB\nMemAvailable:   {free_kb} kB\n")
            cgroup.write_text(f"{limit}\n")
            command = [str(SCRIPT), str(meminfo), str(cgroup)]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return int(run.stdout), run.stderr

    def test_a_job_a_core_where_memory_allows(self):
        self.assertEqual(self.jobs(900_000_000), (CORES, ""))

    def test_memory_limits(self):
        self.assertEqual(self.jobs(1_600_000), (1, ""))
        self.assertEqual(self.jobs(100_000), (1, ""))
        self.assertEqual(self.jobs(3_100_000), (min(2, CORES), ""))

    def test_a_containers_limit_counts(self):
        self.assertEqual(self.jobs(900_000_000, limit="2000000000"), (1, ""))

    def test_max_jobs_overrides(self):
        self.assertEqual(self.jobs(100_000, max_jobs="7"), (7, ""))
        self.assertEqual(self.jobs(900_000_000, max_jobs=""), (CORES, ""))
        for wrong in ("0", "many", "-2"):
            jobs, said = self.jobs(1_600_000, max_jobs=wrong)
            self.assertEqual(jobs, 1)
            self.assertIn(f'MAX_JOBS: "{wrong}"', said)


if __name__ == "__main__":
    unittest.main()
