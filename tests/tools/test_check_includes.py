"""Tests of check_includes: each row of the architecture with an include that it allows and one that it does not."""

import unittest

from support import SourceFile
import check_includes


def messages(*files):
    """All messages for files given as (path, text)."""
    sources = [SourceFile(path, text) for path, text in files]
    return [message for found in check_includes.check(sources).values() for message in found]


def allowed(path, include):
    return not messages((path, f"// File.\n#include {include}\n"))


class Layers(unittest.TestCase):
    def test_table(self):
        for path, include, expected in (
            ("src/math/mask.hpp", '"math/types.hpp"', True),
            ("src/math/mask.hpp", '"core/plan.hpp"', False),
            ("src/core/plan.cpp", '"math/mask.hpp"', True),
            ("src/core/plan.cpp", '"cpu/view.hpp"', False),
            ("src/core/plan.cpp", '"api/c_api.hpp"', False),
            ("src/core/plan.cpp", "<tilewise/tilewise.h>", False),
            ("src/cpu/view.cpp", '"core/plan.hpp"', True),
            ("src/cpu/view.cpp", '"cuda/common/params.hpp"', False),
            ("src/cuda/common/launch.hpp", '"core/plan.hpp"', True),
            ("src/cuda/common/params.hpp", '"core/plan.hpp"', False),
            ("src/cuda/common/params.hpp", '"math/mask.hpp"', True),
            ("src/cuda/ptx/mma.cuh", '"math/types.hpp"', False),
            ("src/cuda/ptx/mma.cuh", '"cuda/ptx/types.cuh"', True),
            ("src/cuda/tile/swizzle.cuh", '"cuda/ptx/mma.cuh"', True),
            ("src/cuda/tile/swizzle.cuh", '"cuda/attend/mask_tile.cuh"', False),
            ("src/cuda/attend/mask_tile.cuh", '"cuda/common/params.hpp"', True),
            ("src/cuda/attend/mask_tile.cuh", '"cuda/common/launch.hpp"', False),
            ("src/cuda/attend/mask_tile.cuh", '"cuda/ptx/mma.cuh"', True),
            ("src/cuda/sm90/fwd.cuh", '"cuda/attend/mask_tile.cuh"', True),
            ("src/cuda/sm90/fwd.cuh", '"cuda/sm90/traits.hpp"', True),
            ("src/cuda/sm90/fwd.cuh", '"cuda/sm80/fwd.cuh"', False),
            ("src/cuda/sm90/fwd.cuh", '"core/plan.hpp"', False),
            ("src/cuda/sm80/bwd.cuh", '"cuda/sm90/traits.hpp"', False),
            ("src/cuda/sm90/backend.cpp", '"core/registry.hpp"', True),
            ("src/cuda/sm90/backend.cpp", '"cuda/sm90/traits.hpp"', True),
            ("src/cuda/sm90/backend.cpp", '"cuda/sm90/kernels.inc"', True),
            ("src/cuda/sm90/backend.cpp", '"cuda/sm90/fwd.cuh"', False),
            ("src/api/c_api.cpp", '"core/plan.hpp"', True),
            ("src/api/c_api.cpp", '"cpu/view.hpp"', False),
            ("src/cli/main.cpp", '"tilewise/tilewise.hpp"', True),
            ("src/cli/main.cpp", '"core/plan.hpp"', False),
            ("src/cli/verify.cpp", '"conformance/cases.hpp"', True),
            ("src/conformance/cases.hpp", '"tilewise/tilewise.hpp"', True),
            ("src/conformance/cases.hpp", '"cli/table.hpp"', False),
            ("examples/generate/main.cpp", "<tilewise/tilewise.hpp>", True),
            ("examples/generate/main.cpp", '"cpu/parallel.hpp"', False),
            ("bench/cpu_bench.cpp", '"math/types.hpp"', False),
            ("include/tilewise/tilewise.hpp", '"tilewise/tilewise.h"', True),
            ("include/tilewise/tilewise.hpp", '"core/plan.hpp"', False),
            ("tests/unit/plan_test.cpp", '"core/plan.hpp"', True),
        ):
            with self.subTest(path=path, include=include):
                self.assertEqual(allowed(path, include), expected)

    def test_paths_relative_to_the_includer(self):
        kernels, view = ("examples/generate/kernels.hpp", "// K.\n"), ("src/cpu/view.hpp", "// V.\n")
        self.assertEqual(messages(kernels, ("examples/generate/main.cpp", '#include "kernels.hpp"\n')), [])
        self.assertEqual(len(messages(view, ("src/core/plan.cpp", '#include "../cpu/view.hpp"\n'))), 1)

    def test_only_directives_count(self):
        text = '// #include "cpu/view.hpp"\nauto s = R"(\n#include "cpu/view.hpp"\n)";\n'
        self.assertEqual(messages(("src/core/plan.cpp", text)), [])

    def test_message(self):
        found = messages(("src/cpu/view.cpp", '// V.\n#include "api/c_api.hpp"\n'))
        what = "cpu includes api (api/c_api.hpp); allowed: itself, core, math"
        self.assertEqual(found, [f"src/cpu/view.cpp:2: forbidden_layer: {what}"])


class Libraries(unittest.TestCase):
    def test_table(self):
        for path, include, expected in (
            ("src/core/plan.cpp", "<vector>", True),
            ("src/core/plan.cpp", "<fmt/format.h>", True),
            ("include/tilewise/tilewise.hpp", "<fmt/format.h>", False),
            ("src/core/device.cpp", "<cuda_runtime.h>", False),
            ("src/api/c_api.cpp", "<cuda.h>", False),
            ("src/cuda/common/launch.hpp", "<cuda_runtime.h>", True),
            ("src/cuda/ptx/mma.cuh", "<cuda_bf16.h>", True),
            ("src/core/plan.cpp", "<nlohmann/json.hpp>", True),
            ("src/cpu/view.cpp", "<nlohmann/json.hpp>", False),
            ("src/cli/main.cpp", "<CLI/CLI.hpp>", True),
            ("src/cpu/view.cpp", "<cblas.h>", False),
            ("bench/cpu_bench.cpp", "<cblas.h>", True),
            ("src/core/plan.cpp", "<gtest/gtest.h>", False),
            ("tests/unit/plan_test.cpp", "<gtest/gtest.h>", True),
            ("src/core/plan.cpp", "<Python.h>", False),
            ("src/math/mask.hpp", "<cstdint>", True),
            ("src/math/mask.hpp", "<vector>", False),
        ):
            with self.subTest(path=path, include=include):
                self.assertEqual(allowed(path, include), expected)


if __name__ == "__main__":
    unittest.main()
