"""tools/dev/compiled.py: which versions need not be compiled again, and who vouches for them."""

import json

from dev import compiled, resources

PRESETS = [
    {"name": "base", "cacheVariables": {"LADDER_PROGRAMS": "ON"}},
    *({"name": name, "inherits": "base", "cacheVariables": {"FLAGS": "-O1"}} for name in ("cuda", "clang", "order")),
]
VERSION = "dev/silu/forward/v02_vector.cu"


def tree(folder):
    files = {
        VERSION: '#include "dev/silu/silu.h"\nint a;\n',
        "dev/silu/forward/v01_naive.cu": "int b;\n",
        "dev/silu/silu.h": '#include "core/registry.h"\n',
        "core/registry.h": "int c;\n",
        "CMakeLists.txt": "project(ladder)\nadd_compile_options(-Wall)\n",
        "CMakePresets.json": json.dumps({"configurePresets": PRESETS}),
        "cmake/LadderLayer.cmake": "\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_is_as_it_was_is_left_out_but_for_the_first_of_a_pass(tmp_path):
    now = compiled.of_versions(tree(tmp_path))
    assert sorted(now) == ["dev/silu/forward/v01_naive.cu", VERSION]
    assert compiled.without(now, {}) == []
    assert compiled.without(now, now) == [VERSION]


def test_a_change_of_the_source_a_header_behind_a_header_or_a_flag_counts(tmp_path):
    before = compiled.of_versions(tree(tmp_path))
    for name in (VERSION, "core/registry.h", "CMakeLists.txt", "cmake/LadderLayer.cmake"):
        file = tmp_path / name
        text = file.read_text()
        file.write_text(text + "int d;\n" if name != "CMakeLists.txt" else text.replace("-Wall", "-Wextra"))
        assert compiled.without(compiled.of_versions(tmp_path), before) == [], name
        file.write_text(text)
    assert compiled.without(compiled.of_versions(tmp_path), before) == [VERSION]


def test_settings_of_both_compilers_count_and_of_other_presets_do_not(tmp_path):
    before = compiled.of_versions(tree(tmp_path))
    for preset, counts in zip(PRESETS, (True, True, True, False), strict=True):
        changed = [each | {"cacheVariables": {"FLAGS": "-O2"}} if each is preset else each for each in PRESETS]
        (tmp_path / "CMakePresets.json").write_text(json.dumps({"configurePresets": changed}))
        assert (compiled.of_versions(tmp_path) != before) == counts, preset["name"]


def test_comments_and_blanks_do_not_count_and_all_else_does(tmp_path):
    tree(tmp_path)
    file = tmp_path / VERSION
    text = file.read_text()
    code = (
        text
        + """\nconst char *a = "b // c /* d  e", f = '\\'', g = '"'; int h = 1'000; auto i = R"x(// "j)" */ k)x";\n#define L\nM n\n"""
    )
    file.write_text(code)
    before = compiled.of_versions(tmp_path)
    file.write_text("// Idea: none.\n\n" + code.replace("; ", ";  /* x\n */ ").replace("\nM", "  // y's \"z\n\n  M"))
    assert compiled.of_versions(tmp_path)[VERSION] != before[VERSION]  # a line was broken
    file.write_text("// Idea: none.\n\n" + code.replace("; ", ";  /* x */ ").replace("\nM", "  // y's \"z\n\n  M"))
    assert compiled.of_versions(tmp_path) == before
    for piece in ("b // c", "/* d", "d  e", "\\'", "1'000", '// "j', "*/ k", "#define L\nM"):
        changed = code.replace(piece, {"d  e": "d e", "#define L\nM": "#define L M"}.get(piece, piece.swapcase() + "_"))
        assert changed != code
        file.write_text(changed)
        assert compiled.without(compiled.of_versions(tmp_path), before) == [], piece


def test_a_header_that_is_not_included_or_a_new_folder_does_not_count(tmp_path):
    before = compiled.of_versions(tree(tmp_path))
    (tmp_path / "core/other.h").write_text("int d;\n")
    (tmp_path / "CMakeLists.txt").write_text((tmp_path / "CMakeLists.txt").read_text() + "add_subdirectory(policy)\n")
    assert compiled.of_versions(tmp_path) == before


def test_both_records_stand_in_one_file(tmp_path):
    record = tmp_path / "last.json"
    assert compiled.read("tidy", record) == {}
    compiled.keep("tidy", {"a.cpp": "1"}, record)
    compiled.keep("versions", {VERSION: "2"}, record)
    assert (compiled.read("tidy", record), compiled.read("versions", record)) == ({"a.cpp": "1"}, {VERSION: "2"})
    record.write_text(record.read_text()[:-9])
    assert compiled.read("tidy", record) == {}


def test_a_build_without_versions_vouches_for_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "RECORD", tmp_path / "last.json")
    for build in compiled.BUILDS:
        folder = tmp_path / "build" / build
        folder.mkdir(parents=True)
        (folder / "CMakeCache.txt").write_text(f"LADDER_WERROR:BOOL=ON\nLADDER_WITHOUT:STRING={VERSION}\n")
    assert compiled.main(["--keep"]) == 1
    assert capsys.readouterr().err.count("is not a build of everything with warnings as errors") == 2
    assert not compiled.RECORD.exists()


def test_resources_asks_for_no_report_of_what_was_left_out(tmp_path):
    (tmp_path / "CMakeCache.txt").write_text(f"LADDER_WITHOUT:STRING={VERSION};dev/x/y/v03_z.cu\nA:STRING=\n")
    assert {str(path.relative_to(resources.ROOT)) for path in resources.left_out(tmp_path)} == {
        VERSION,
        "dev/x/y/v03_z.cu",
    }
    (tmp_path / "CMakeCache.txt").write_text("LADDER_WITHOUT:STRING=\n")
    assert resources.left_out(tmp_path) == set()
