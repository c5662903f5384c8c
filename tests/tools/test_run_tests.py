"""Tests of run_tests: how many cases the output of a test program stands for."""

import unittest

import support  # noqa: F401  (makes tools/ importable)
from run_tests import count_output

HEAD = "[==========] Running 3 tests from 1 test suite.\n[       OK ] A.x (0 ms)\n[       OK ] A.y (0 ms)\n"
TAIL = "[==========] 3 tests from 1 test suite ran. (0 ms total)\n"


class Counts(unittest.TestCase):
    def check(self, output, succeeded, passed, failed):
        count = count_output(output, succeeded)
        self.assertEqual((count.passed, count.failed), (passed, failed))

    def test_google_test_cases(self):
        self.check(HEAD + "[       OK ] A.z (0 ms)\n" + TAIL + "[  PASSED  ] 3 tests.\n", True, 3, 0)

    def test_failed_case(self):
        self.check(HEAD + "[  FAILED  ] A.z (0 ms)\n" + TAIL + "[  FAILED  ] 1 test, listed below:\n", False, 2, 1)

    def test_crash_in_a_case(self):
        self.check(HEAD + "[ RUN      ] A.z\n", False, 2, 1)

    def test_failure_after_the_last_case(self):
        self.check(HEAD + "[       OK ] A.z (0 ms)\n" + TAIL + "a leak was found\n", False, 3, 1)

    def test_program_without_cases_fails(self):
        output = "[==========] Running 0 tests from 0 test suites.\n[==========] 0 tests from 0 test suites ran.\n"
        self.check(output, True, 0, 1)

    def test_skipped_cases_count_as_nothing(self):
        skipped = "[  SKIPPED ] A.z (0 ms)\n"
        self.check(HEAD + skipped + TAIL + "[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 test, listed below:\n", True, 2, 0)
        alone = "[==========] Running 1 test from 1 test suite.\n" + skipped
        self.check(alone + "[==========] 1 test from 1 test suite ran. (0 ms total)\n", True, 0, 0)
        self.check("Ran 5 tests in 0.1s\n\nOK (skipped=2)\n", True, 3, 0)

    def test_script(self):
        self.check("hello\n", True, 1, 0)
        self.check("hello\n", False, 0, 1)

    def test_script_that_counts(self):
        self.check("Ran 5 tests in 0.1s\n\nOK\n", True, 5, 0)
        self.check("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=2)\n", False, 2, 3)
        self.check("case a\n7 passed, 0 failed\n", True, 7, 0)
        self.check("case a\n6 passed, 1 failed\n", False, 6, 1)
        self.check("7 passed, 0 failed\nbut then it crashed\n", False, 0, 1)


if __name__ == "__main__":
    unittest.main()
