"""Tests of check_rules: each rule with code that breaks it and with code that looks like it but is right."""

import unittest

from support import SourceFile, violations
import check_rules as rules

HEADER = "// What this file does.\n"


def body(lines):
    return "void f() {\n" + "    g();\n" * (lines - 2) + "}\n"


class Sizes(unittest.TestCase):
    def test_file_size(self):
        self.assertEqual(violations(rules.file_size, "src/core/a.cpp", "\n" * 500), [])
        self.assertEqual(len(violations(rules.file_size, "src/core/a.cpp", "\n" * 501)), 1)
        self.assertEqual(violations(rules.file_size, "docs/long.md", "\n" * 900), [])

    def test_function_length(self):
        self.assertEqual(violations(rules.function_length, "src/core/a.cpp", body(60)), [])
        self.assertEqual(violations(rules.function_length, "src/core/a.cpp", body(61)), [1])

    def test_kernels_may_be_longer(self):
        self.assertEqual(violations(rules.function_length, "src/cuda/sm90/fwd.cuh", body(150)), [])
        self.assertEqual(violations(rules.function_length, "src/cuda/sm90/fwd.cuh", body(151)), [1])

    def test_long_lambda_is_reported_once(self):
        source = "void f() {\nauto l = [] {\n" + "g();\n" * 70 + "};\n}\n"
        self.assertEqual(violations(rules.function_length, "src/core/a.cpp", source), [1])

    def test_long_class_is_no_function(self):
        source = "struct S {\n" + "    void f();\n" * 100 + "};\n"
        self.assertEqual(violations(rules.function_length, "src/core/a.hpp", source), [])

    def test_python_functions(self):
        source = "def f():\n" + "    g()\n" * 60
        self.assertEqual(violations(rules.function_length, "tools/a.py", source), [1])
        docstring = '    """Long.\n' + "    more\n" * 60 + '    """\n'
        self.assertEqual(violations(rules.function_length, "tools/a.py", "def f():\n" + docstring + "    g()\n" * 60), [])
        self.assertEqual(violations(rules.function_length, "tools/a.py", "def f():\n" + docstring + "    g()\n" * 61), [64])
        self.assertEqual(violations(rules.function_parameters, "tools/a.py", "def f(a, b, c, d, e, f, g): pass"), [1])
        self.assertEqual(violations(rules.function_parameters, "tools/a.py", "def f(self, b, c, d, e, f, g): pass"), [])
        self.assertEqual(violations(rules.function_parameters, "tools/a.py", "def f(a, b, c, d, e, f, *, g): pass"), [])

    def test_function_parameters(self):
        six = "int a, int b, int c, int d, int e, int f"
        for path, source, lines in (
            ("src/core/a.cpp", f"void f({six}) {{}}", []),
            ("src/core/a.cpp", f"void f({six}, int g) {{}}", [1]),
            ("include/tilewise/a.h", f"\nint f({six}, void* g);", [2]),
            ("src/core/a.cpp", f"auto f = [](int a, {six.replace('int a', 'int z')}) {{}};", [1]),
            ("src/core/a.cpp", "Foo x(a, b, c, d, e, f, g);", []),
            ("src/cpu/kernels.inc", "TILEWISE_ROW(a, b, c, d, e, f, g, h)", []),
        ):
            with self.subTest(source=source):
                self.assertEqual(violations(rules.function_parameters, path, source), lines)

    def test_template_parameters(self):
        good = "template <int A, int B, int C, int D> struct S;"
        bad = "template <int A, int B, int C, int D, int E> struct S;"
        self.assertEqual(violations(rules.template_parameters, "src/core/a.hpp", good), [])
        self.assertEqual(violations(rules.template_parameters, "src/core/a.hpp", bad), [1])

    def test_struct_fields(self):
        twelve = " ".join(f"int x{i};" for i in range(12))
        self.assertEqual(violations(rules.struct_fields, "src/core/a.hpp", f"struct S {{ {twelve} void f(); }};"), [])
        self.assertEqual(violations(rules.struct_fields, "src/core/a.hpp", f"struct S {{ {twelve} int y; }};"), [1])


class Places(unittest.TestCase):
    def test_inline_assembly(self):
        source = 'void f() { asm volatile("mov %0, %1;" : "=r"(x) : "r"(y)); }'
        self.assertEqual(violations(rules.inline_assembly, "src/cpu/a.cpp", source), [1])
        self.assertEqual(violations(rules.inline_assembly, "src/cuda/ptx/mma.cuh", source), [])
        harmless = '// asm\nauto s = "asm"; int asm_size;'
        self.assertEqual(violations(rules.inline_assembly, "src/cpu/a.cpp", harmless), [])

    def test_inline_assembly_in_a_macro(self):
        source = '#define PAUSE \\\n    __asm__("pause")'
        self.assertEqual(violations(rules.inline_assembly, "src/cpu/a.cpp", source), [2])

    def test_architecture_ifdef(self):
        rule = rules.architecture_ifdef
        self.assertEqual(violations(rule, "src/core/a.cpp", "#if __CUDA_ARCH__ >= 900\n#endif"), [1])
        self.assertEqual(violations(rule, "src/cpu/a.cpp", "int a;\n#ifdef __AVX512F__\n#endif"), [2])
        self.assertEqual(violations(rule, "src/cpu/simd/a.hpp", "#ifdef __AVX512F__\n#endif"), [])
        self.assertEqual(violations(rule, "src/cuda/ptx/a.cuh", "#if __CUDA_ARCH__ >= 900\n#endif"), [])
        self.assertEqual(violations(rule, "src/core/a.cpp", "#if defined(__CUDACC__)\n#endif"), [])
        self.assertEqual(violations(rule, "src/core/a.cpp", "// #if __AVX2__ is not for this file\n"), [])

    def test_host_or_device_is_asked_in_math_only(self):
        source = "#if !defined(__CUDA_ARCH__)\n#endif"
        self.assertEqual(violations(rules.architecture_ifdef, "src/math/types.hpp", source), [])
        self.assertEqual(violations(rules.architecture_ifdef, "src/core/types.hpp", source), [1])
        source = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n#endif"
        self.assertEqual(violations(rules.architecture_ifdef, "src/math/types.hpp", source), [1])

    def test_library_output(self):
        rule, path = rules.library_output, "src/core/a.cpp"
        forbidden = 'printf("x"); std::printf("x"); std::cout << 1; abort(); std::exit(1); fmt::print(x);'
        for source in forbidden.split("; "):
            with self.subTest(source=source):
                self.assertEqual(violations(rule, path, f"void f() {{ {source}; }}"), [1])
                self.assertEqual(violations(rule, "src/cli/a.cpp", f"void f() {{ {source}; }}"), [])
        harmless = 'snprintf(b, 3, x); loop.exit(); int exit = 1; Status::abort(); /* printf(x) */; g("exit(1)");'
        for source in harmless.split("; "):
            with self.subTest(source=source):
                self.assertEqual(violations(rule, path, f"void f() {{ {source}; }}"), [])

    def test_environment_read(self):
        rule = rules.environment_read
        self.assertEqual(violations(rule, "src/core/a.cpp", 'auto x = std::getenv("HOME");'), [1])
        self.assertEqual(violations(rule, "src/core/a.cpp", "auto x = getenv(name);"), [1])
        self.assertEqual(violations(rule, "src/core/a.cpp", 'auto x = std::getenv("TILEWISE_LOG");'), [])
        self.assertEqual(violations(rule, "tests/unit/a.cpp", 'auto x = std::getenv("TEST_TMPDIR");'), [])
        self.assertEqual(violations(rule, "src/cli/a.cpp", 'auto x = std::getenv("TEST_TMPDIR");'), [1])

    def test_machine_path(self):
        home = "/" + "home/someone/x"
        self.assertEqual(violations(rules.machine_path, "docs/a.md", f"see {home}"), [1])
        self.assertEqual(violations(rules.machine_path, "src/core/a.cpp", f'\nauto p = "{home}";'), [2])
        harmless = "https://example.org/home/page and src/root/x"
        self.assertEqual(violations(rules.machine_path, "docs/a.md", harmless), [])

    def test_skipped_test(self):
        rule = rules.skipped_test
        source = "TEST(A, B) { GTEST_SKIP(); }\nTEST(A, DISABLED_C) {}"
        self.assertEqual(violations(rule, "tests/a.cpp", source), [1, 2])
        self.assertEqual(violations(rule, "tests/a.cpp", "// GTEST_SKIP is not for us\nint DISABLED = 1;"), [])
        self.assertEqual(violations(rule, "tests/device/a.cpp", source), [2])


class Comments(unittest.TestCase):
    def test_header_comment(self):
        rule = rules.header_comment
        for path, text in (
            ("src/core/a.hpp", "// Says what.\n#pragma once\n"),
            ("src/core/a.hpp", "#pragma once\n\n/* Says what. */\n"),
            ("tools/a.py", '#!/usr/bin/env python3\n"""Says what."""\n'),
            ("tools/a.sh", "#!/bin/sh\n# Says what.\n"),
            ("src/CMakeLists.txt", "# Says what.\nadd_library(x)\n"),
            ("src/core/empty.cpp", ""),
            ("README.md", "Tilewise\n"),
        ):
            with self.subTest(path=path, text=text):
                self.assertEqual(violations(rule, path, text), [])
        for path, text in (
            ("src/core/a.cpp", '#include "core/a.hpp"\n// Late.\n'),
            ("src/core/a.hpp", "#pragma once\nint x;\n"),
            ("tools/a.py", "#!/usr/bin/env python3\nimport os\n"),
            ("src/CMakeLists.txt", "add_library(x)\n"),
        ):
            with self.subTest(path=path, text=text):
                self.assertEqual(violations(rule, path, text), [1])

    def test_unfinished_marker(self):
        rule, marker = rules.unfinished_marker, "TO" + "DO"
        self.assertEqual(violations(rule, "src/core/a.cpp", f"int a;\n// {marker}: more"), [2])
        self.assertEqual(violations(rule, "src/core/a.cpp", f"/* a\n   {marker} */"), [2])
        self.assertEqual(violations(rule, "tools/a.py", f"x = 1  # {marker}\n"), [1])
        self.assertEqual(violations(rule, "CMakeLists.txt", f"# {marker}\n"), [1])
        self.assertEqual(violations(rule, "src/core/a.cpp", f'auto s = "{marker}"; // todo list, mktemp XXXXXX'), [])

    def test_commented_out_code(self):
        for comment in (
            "return x + 1;",
            "if (a < b) {",
            "launch(plan, f(x));",
            "out.push_back(1);",
            "const int x = 3;",
            "auto y = f(x);",
            '#include "core/a.hpp"',
            "}",
            "} else {",
        ):
            with self.subTest(comment=comment):
                source = HEADER + f"int a;\n// Why this is so.\n// {comment}\nint b;\n"
                self.assertEqual(violations(rules.commented_out_code, "src/core/a.cpp", source), [4])

    def test_prose_and_formulas_are_no_code(self):
        for comment in (
            "the row sees no key; its output is 0;",
            "s = scale * dot(q, k);",
            "o = 0, lse = -inf;",
            "return to the caller what was refused; the rest is kept.",
            "if (as here) the group is packed, rows are shared",
            "for each key (and page) of the tile:",
            "f(x) is monotone; g(x) is not",
            "{begin, end} of the interval",
            "#3 of the three cases",
        ):
            with self.subTest(comment=comment):
                source = HEADER + f"int a;\n// {comment}\nint b;\n"
                self.assertEqual(violations(rules.commented_out_code, "src/core/a.cpp", source), [])

    def test_examples_are_no_dead_code(self):
        header = "// How to use it:\n//     auto x = make(1);\n//     run(x);\n"
        self.assertEqual(violations(rules.commented_out_code, "src/core/a.hpp", header), [])
        example = HEADER + "int a;\n// For instance:\n// run(x);\nint b;\n/// run(x);\nint c;\n"
        self.assertEqual(violations(rules.commented_out_code, "src/core/a.hpp", example), [])


class Messages(unittest.TestCase):
    def test_message_names_file_line_rule_and_limit(self):
        found = rules.check([SourceFile("src/core/a.cpp", HEADER + body(70))])
        self.assertEqual(
            found["function_length"], ["src/core/a.cpp:2: function_length: f has 70 lines; at most 60"]
        )
        self.assertEqual(sum(len(messages) for messages in found.values()), 1)
        self.assertEqual(len(found), len(rules.RULES))


if __name__ == "__main__":
    unittest.main()
