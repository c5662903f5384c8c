"""Tests of the C++ scanner: tokens, functions and their parameters, fields of structs, template lists."""

import unittest

from support import declarations, fields, functions, outline
from cpp_scan.tokens import tokenize


def texts(source, kind):
    return [t.text for t in tokenize(source) if t.kind == kind]


class Tokens(unittest.TestCase):
    def test_comment_markers_inside_strings_are_text(self):
        self.assertEqual(texts('auto s = "// no /* comment";', "comment"), [])

    def test_quotes_and_braces_inside_comments_are_text(self):
        self.assertEqual(texts("// it's {\nint x; /* \" } */", "comment"), ["// it's {", '/* " } */'])

    def test_raw_string_is_one_token(self):
        source = 'auto s = R"sql(a " } // )" b)sql"; int y;'
        self.assertEqual(texts(source, "string"), ['R"sql(a " } // )" b)sql"'])
        self.assertIn("y", texts(source, "id"))

    def test_escapes_and_prefixes(self):
        self.assertEqual(texts(r'f(u8"a\"{", L"b", "\\");', "string"), [r'u8"a\"{"', 'L"b"', r'"\\"'])
        self.assertEqual(texts(r"f('{', '\'', '\\');", "char"), ["'{'", r"'\''", r"'\\'"])

    def test_digit_separators_are_no_characters(self):
        self.assertEqual(texts("int x = 1'000'000; char c = '{';", "number"), ["1'000'000"])
        self.assertEqual(texts("f(1.5e-3f, 0x1p-24, .5);", "number"), ["1.5e-3f", "0x1p-24", ".5"])

    def test_lines_are_counted_through_long_tokens(self):
        tokens = tokenize('/* a\nb */ R"(\n)" x')
        self.assertEqual([(t.kind, t.line) for t in tokens], [("comment", 1), ("string", 2), ("id", 3)])

    def test_directive_takes_its_continuation_lines(self):
        source = "#define F(x) \\\n    { x\nint y;"
        self.assertEqual([t.text for t in tokenize(source) if not t.in_directive and t.kind == "id"], ["int", "y"])

    def test_comment_in_a_directive_is_a_comment(self):
        tokens = tokenize("#if A  // why\n#endif")
        self.assertEqual([t.text for t in tokens if t.kind == "directive"], ["#if A", "#endif"])
        self.assertEqual([t.text for t in tokens if t.kind == "comment"], ["// why"])

    def test_hash_inside_a_line_is_no_directive(self):
        self.assertEqual(texts("int a; # define", "directive"), [])


class Functions(unittest.TestCase):
    def test_free_function(self):
        self.assertEqual(functions("int f(int a, int b) { return a + b; }"), [("f", 2)])

    def test_no_parameters(self):
        self.assertEqual(functions("void f() {} void g(void) {}"), [("f", 0), ("g", 0)])

    def test_length_spans_the_braces(self):
        function = outline("int f()\n{\n    return 1;\n}\n").functions[0]
        self.assertEqual((function.line, function.end_line), (2, 4))

    def test_commas_inside_template_arguments_and_defaults(self):
        source = "void f(std::map<int, std::pair<int, int>> m, int x = g(1, 2), S s = {1, 2}) {}"
        self.assertEqual(functions(source), [("f", 3)])

    def test_namespaces_and_classes_hold_functions(self):
        source = "namespace a::b { namespace { struct S { int f(int x) const { return x; } }; void g() {} } }"
        self.assertEqual(functions(source), [("f", 1), ("g", 0)])

    def test_constructor_with_initialisers(self):
        source = "struct S { S(int a, int b) : a_(a), b_{b}, c_{f({1})} { work(); } int a_, b_, c_; };"
        self.assertEqual(functions(source), [("S", 2)])
        self.assertEqual(fields(source), {"S": 3})

    def test_constructor_outside_of_its_class(self):
        self.assertEqual(functions("A::A(int x) noexcept : B<int>{x}, y_(1) {} A::~A() {}"), [("A", 1), ("A", 0)])

    def test_operators(self):
        source = """struct S {
            bool operator==(const S& o) const { return true; }
            int operator()(int a, int b) { return a; }
            S& operator=(S&& o) noexcept { return *this; }
            int& operator[](int i) { return v[i]; }
            explicit operator bool() const { return true; }
            auto operator<=>(const S&) const = default;
        };"""
        self.assertEqual([n for _, n in functions(source)], [1, 2, 1, 1, 0])
        self.assertEqual(fields(source), {"S": 0})

    def test_templates_and_trailing_return_types(self):
        source = "template <class T, int N = (1 > 0)> requires(N > 1) auto f(T a) -> std::array<T, N> { return {}; }"
        self.assertEqual(functions(source), [("f", 1)])
        self.assertEqual(functions("auto g(int a) -> S { return S{a}; }"), [("g", 1)])

    def test_specialisation(self):
        self.assertEqual(functions("template <> int f<int, 3>(int a, int b) { return a; }"), [("f", 2)])

    def test_attributes_and_specifiers_before_the_name(self):
        source = '[[nodiscard]] inline int f(int a) { return a; } __attribute__((target("avx2"))) void g(int a) {}'
        self.assertEqual(functions(source), [("f", 1), ("g", 1)])

    def test_macro_with_arguments_before_the_declaration(self):
        self.assertEqual(functions('TARGET("avx2", 1) void f(int a, int b, int c) {}'), [("f", 3)])

    def test_kernel(self):
        source = "template <class Row>\n__global__ void __launch_bounds__(Row::kThreads, 1) fwd(Params p, int n) {}"
        self.assertEqual(functions(source), [("fwd", 2)])

    def test_test_macros(self):
        self.assertEqual(functions("TEST(Mask, SeesNothing) { EXPECT_TRUE(x); }"), [("TEST", 2)])

    def test_control_flow_is_no_function(self):
        source = """void f() {
            if (a) { } else { }
            for (int i = 0; i < n; ++i) { }
            do { } while (x);
            switch (y) { case 1: { } }
        }"""
        self.assertEqual(functions(source), [("f", 0)])
        self.assertEqual(len(outline(source).functions), 1)

    def test_function_returning_a_struct_type(self):
        self.assertEqual(functions("struct Foo make(int a) { return {}; }"), [("make", 1)])

    def test_extern_c(self):
        self.assertEqual(functions('extern "C" { int f(int a) { return a; } }'), [("f", 1)])
        self.assertEqual(functions('extern "C" int g(int a) { return a; }'), [("g", 1)])

    def test_variables_are_no_functions(self):
        source = """constexpr int kTable[] = {1, 2, 3};
            const std::array<int, 2> kPair{1, 2};
            static const Foo kFoo = make(1, 2);
            constexpr Foo kBar{f(3)};
            template <class T> concept C = requires(T t) { t.x; };
            enum class E : uint8_t { kA, kB };"""
        self.assertEqual(outline(source).functions, [])

    def test_branches_of_the_preprocessor_may_open_the_same_brace(self):
        source = "#ifdef A\nvoid f(int a) {\n#else\nvoid f(int a, int b) {\n#endif\n}\nvoid g() {}"
        self.assertEqual(functions(source), [("f", 2), ("g", 0)])

    def test_declarations(self):
        source = "int f(int a, const S& b); struct S { void g(int, float) const; S(int a) = delete; };"
        self.assertEqual(declarations(source), [("f", 2), ("g", 2)])

    def test_variable_with_constructor_arguments_is_no_declaration(self):
        self.assertEqual(declarations("Foo foo(a, b, c, d, e, f, g);\nROW(a, b, c, d, e, f, g);"), [])

    def test_pointer_to_function_is_no_declaration(self):
        self.assertEqual(declarations("Status (*run)(int a, int b); using F = int (*)(int, int);"), [])


class Lambdas(unittest.TestCase):
    def lambdas(self, source):
        return [f.parameters for f in outline(source).functions if f.name == "lambda"]

    def test_lambda_forms(self):
        source = """void f() {
            auto a = [&](int x, int y) { return x; };
            auto b = [] { return 1; };
            g([this, z = 3](auto v) mutable -> int { return v; }, 2);
            return [=]<class T>(T t) noexcept { return t; };
        }"""
        self.assertEqual(self.lambdas(source), [2, 0, 1, 1])
        self.assertEqual(functions(source), [("f", 0)])

    def test_lambda_at_namespace_scope(self):
        source = "const auto kF = [](int a, int b) { return a; };\nvoid g() {}"
        self.assertEqual(functions(source), [("lambda", 2), ("g", 0)])

    def test_lambda_in_a_default_member_initialiser(self):
        source = "struct S { std::function<int(int)> f = [](int x) { return x; }; int y; };"
        self.assertEqual(fields(source), {"S": 2})

    def test_subscripts_bindings_and_attributes_are_no_lambdas(self):
        source = """void f() {
            for (auto [a, b] : pairs) { use(a, b); }
            if (x[i]) [[likely]] { work(); }
            int v[] = {1, 2};
            delete[] p;
        }"""
        self.assertEqual(self.lambdas(source), [])


class Fields(unittest.TestCase):
    def test_plain_fields_and_initialisers(self):
        source = """struct S {
            int a, b = 2;
            float c[4] = {1, 2, 3, 4};
            std::map<int, int> d{{1, 2}};
            const char* e = "x;y";
            unsigned f : 3;
            alignas(16) float g[4];
            bool h = a < b;
        };"""
        self.assertEqual(fields(source), {"S": 8})

    def test_what_is_no_field(self):
        source = """class S {
        public:
            S();
            explicit S(int a);
            static constexpr int kSize = 3;
            static int counter;
            using T = int;
            typedef int U;
            friend class F;
            enum class E { kA, kB };
            struct Inner { int x; int y; };
            struct Forward;
            template <class V> void h(V v);
            static_assert(sizeof(int) == 4, "size");
            NO_COPY(S);
            bool operator==(const S&) const = default;
            int method(int a) const;
        private:
            int value_;
        };"""
        self.assertEqual(fields(source), {"S": 1, "Inner": 2})

    def test_pointers_to_functions_are_fields(self):
        source = """struct S {
            int (*a)(int, int);
            Status (*b)(const Plan& p) = nullptr;
            std::function<void(int, int)> c;
        };"""
        self.assertEqual(fields(source), {"S": 3})

    def test_c_struct(self):
        source = "typedef struct tw_tensor { void* data; int64_t shape[4], strides[4]; } tw_tensor;"
        self.assertEqual(fields(source), {"tw_tensor": 3})

    def test_nested_type_with_a_declarator_and_anonymous_union(self):
        source = "struct S { struct { int a; int b; } pair; union { int i; float f; }; struct T* next; };"
        self.assertEqual(fields(source)["S"], 3)

    def test_base_classes_attributes_and_names(self):
        source = """struct [[nodiscard]] A final : B<int>, C { int x; };
            class API D { int y; };
            template <> struct E<int> { int z; };"""
        self.assertEqual(fields(source), {"A": 1, "D": 1, "E": 1})

    def test_variable_of_struct_type_is_no_class(self):
        self.assertEqual(fields("struct Foo foo = {1, 2}; struct Foo bar {1, 2};"), {})

    def test_local_struct(self):
        source = "void f() { struct Local { int a; int g(int x) { return x; } }; Local l{1}; }"
        self.assertEqual(fields(source), {"Local": 1})
        self.assertEqual(functions(source), [("f", 0)])


class Templates(unittest.TestCase):
    def test_counts(self):
        source = """template <class T, int N> struct A;
            template <> struct A<int, 1> {};
            template <template <class, class> class C, bool B = (3 > 2), class... Rest> void f();
            template void f<X, true, 1, 2, 3>();"""
        self.assertEqual([count for _, count in outline(source).templates], [2, 0, 3, 2])


if __name__ == "__main__":
    unittest.main()
