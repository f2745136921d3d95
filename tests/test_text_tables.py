"""Tables in text files: rows are what the lines say, and no spreadsheet runs a cell that was written."""

from __future__ import annotations

import csv
import gzip
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import hfcomp
from hfcomp.text_tables import open_table, plain_cell, safe_cell
from hfcomp.writing import write_csv

NAMES = ["filepath", "title"]
UNQUOTED = [
    ["0.png", "a red ball on a table"],
    ["1.png", '"stop line beside a green ball'],
    ["2.png", "a blue ball near a wall"],
    ["3.png", 'shop called "main street"'],
    ["4.png", "a purple ball"],
]


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x","y")']
PLAIN = ["a dog", "-3.5", "+1", "-1e-5", "3", "", "a = b", "'quoted'", "a-b", "5 - 3"]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tsv(rows):
    return "".join("\t".join(row) + "\n" for row in [NAMES, *rows])


def read(path):
    table = open_table(path)
    rows = [row for _, row in table.rows()]
    return table, rows


def test_a_title_that_begins_with_a_quote_swallows_no_row(tmp_path):
    table, rows = read(write(tmp_path / "a.tsv", tsv(UNQUOTED)))
    assert rows == UNQUOTED and table.columns == NAMES and not table.is_quoted
    (note,) = table.notes
    assert "quotes are read as ordinary characters" in note and "begins in line 3" in note


@pytest.mark.parametrize("last", ["end of a 12", "a\n"])
def test_two_stray_quotes_that_would_fit_swallow_none_either(tmp_path, last):
    """Between them are whole lines, which a quoted text of a table with tabs hardly has."""
    rows = [["0.png", '"open'], ["1.png", "b"], ["2.png", f'{last.strip()}"'], ["3.png", 'say "x" so']]
    assert read(write(tmp_path / "a.tsv", tsv(rows)))[1] == rows


QUOTED = [["0.png", 'a "red" cube, alone\nand one more\twith a tab'], ["1.png", '"quoted"'], ["2.png", "plain; text"]]


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t"), ("b.csv", ";")])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quoted_texts_with_line_ends_and_delimiters_are_whole(tmp_path, name, delimiter, quoting):
    frame = pd.DataFrame(QUOTED, columns=NAMES)
    frame.to_csv(tmp_path / name, index=False, sep=delimiter, quoting=quoting)
    table, rows = read(tmp_path / name)
    assert rows == QUOTED and table.is_quoted and len(table.notes) == (name == "b.csv")


def test_a_continued_text_with_a_comma_is_no_row_of_its_own(tmp_path):
    rows = [["0.png", "a man on a bench\nreading, with a hat"], ["1.png", "one\ntwo, see a.b"]]
    pd.DataFrame(rows, columns=NAMES).to_csv(tmp_path / "a.csv", index=False)
    assert read(tmp_path / "a.csv")[1] == rows


@pytest.mark.follows("hfcomp/text_tables.py", "Close it in its line, double it")
def test_rows_inside_a_quoted_text_are_refused_by_the_line_of_the_quote(tmp_path):
    text = 'image,caption\n0.png,a\n1.png,"stop\n2.png,b\n3.png,the 12"\n4.png,c\n'
    with pytest.raises(ValueError, match=r"a\.csv, line 3: .* line 5"):
        read(write(tmp_path / "a.csv", text))
    fixed = text.replace('"stop', '"""stop"').replace('the 12"', '"the 12"""')
    assert [row[1] for row in read(write(tmp_path / "a.csv", fixed))[1]] == ["a", '"stop', "b", 'the 12"', "c"]


@pytest.mark.follows("hfcomp/reading.py", "Double every quote inside a text, and enclose the text")
def test_a_quote_that_is_not_closed_names_both_lines(tmp_path):
    text = 'image,caption\n0.png,a\n1.png,"stop\n2.png,b\n'
    with pytest.raises(ValueError, match=r"line 4: .*line 3"):
        read(write(tmp_path / "a.csv", text))
    assert len(read(write(tmp_path / "a.csv", text.replace('"stop', '"""stop"')))[1]) == 3


@pytest.mark.follows("hfcomp/text_tables.py", "quotes around it.")
def test_a_row_with_another_number_of_cells_is_named(tmp_path):
    text = "image,caption\n0.png,a cat, and a dog\n"
    with pytest.raises(ValueError, match=r"line 2: found 3 fields, \[.*\]; expected 2.* comma"):
        read(write(tmp_path / "a.csv", text))
    assert read(write(tmp_path / "a.csv", 'image,caption\n0.png,"a cat, and a dog"\n'))[1][0][1] == "a cat, and a dog"


def test_a_table_that_is_half_quoted_is_not_read_without_quoting(tmp_path):
    text = 'filepath\ttitle\n"0.png"\t"he said ""hi"""\n"1.png"\t"a "b" c"\n'
    with pytest.raises(ValueError, match=r"a\.tsv, line 3"):
        read(write(tmp_path / "a.tsv", text))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("delimiter", [";", ",", "\t", "|"])
def test_the_delimiter_of_the_first_line_counts(tmp_path, name, delimiter):
    table, rows = read(write(tmp_path / name, f"image{delimiter}caption\n0.png{delimiter}a; b\n".replace("; b", "")))
    assert table.columns == ["image", "caption"] and rows == [["0.png", "a"]]
    assert len(table.notes) == (delimiter != {"a.csv": ",", "a.tsv": "\t"}[name])


def test_one_column_needs_no_delimiter(tmp_path):
    assert read(write(tmp_path / "a.csv", "caption\na dog\n\na cat\n"))[1] == [["a dog"], ["a cat"]]
    assert read(write(tmp_path / "a.csv", ""))[0].columns == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_all_systems(tmp_path, end):
    content = f"image,caption{end}0.png,a{end}{end}1.png,b"
    assert read(write(tmp_path / "a.csv", content))[1] == [["0.png", "a"], ["1.png", "b"]]
    assert read(write(tmp_path / "a.tsv", content.replace(",", "\t")))[1] == [["0.png", "a"], ["1.png", "b"]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_marks_of_encodings_are_followed(tmp_path, encoding):
    assert read(write(tmp_path / "a.tsv", "image\tcaption\n0.png\tcafé\n".encode(encoding)))[1] == [["0.png", "café"]]
    packed = gzip.compress("image,caption\n0.png,café\n".encode(encoding))
    assert read(write(tmp_path / "a.csv.gz", packed))[1] == [["0.png", "café"]]


@pytest.mark.follows("hfcomp/text_tables.py", "Save the file as UTF-8. For a Western European file, ")
def test_another_encoding_is_named_by_line_row_and_byte_with_a_command_that_converts_it(tmp_path):
    text = 'image,caption\n0.png,"two\nlines"\n1.png,café\n'
    with pytest.raises(ValueError) as error:
        read(write(tmp_path / "my table.csv", text.encode("latin-1")))
    place = text.encode("latin-1").index(b"\xe9")
    assert f"line 4: b'1.png,caf\\xe9' is not UTF-8: row 1 has the byte 0xE9 at offset {place}" in str(error.value)
    subprocess.run(str(error.value).split("`")[1], shell=True, check=True)
    assert read(tmp_path / "utf8-my table.csv")[1][1] == ["1.png", "café"]


@pytest.mark.follows("hfcomp/text_tables.py", "duplicate column {twice!r}. Rename or remove one of them.")
def test_a_column_that_is_named_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 1: .*'caption'"):
        read(write(tmp_path / "a.csv", "caption,caption\na,b\n"))
    assert read(write(tmp_path / "a.csv", "caption,other\na,b\n"))[0].columns == ["caption", "other"]


def test_columns_without_a_name_are_called_as_pandas_calls_them(tmp_path):
    pd.DataFrame({"caption": ["a"]}).to_csv(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv")[0].columns == ["Unnamed: 0", "caption"]


@pytest.mark.follows("hfcomp/text_tables.py", "Download it again.")
def test_a_compressed_file_that_was_cut_is_named(tmp_path):
    whole = gzip.compress(b"caption\n" + b"a dog\n" * 1000)
    with pytest.raises(ValueError, match=r"a\.csv\.gz .*decompressed"):
        read(write(tmp_path / "a.csv.gz", whole[:-20]))
    assert len(read(write(tmp_path / "a.csv.gz", whole))[1]) == 1000


def test_a_first_line_that_states_the_delimiter_is_no_row(tmp_path):
    table, rows = read(write(tmp_path / "a.csv", "sep=;\r\nimage;caption\r\n0.png;a, b\r\n"))
    assert table.columns == ["image", "caption"] and rows == [["0.png", "a, b"]]
    with pytest.raises(ValueError, match="a.csv, line 4: found 1 fields"):
        read(write(tmp_path / "a.csv", "sep=;\nimage;caption\n0.png;a\nb\n"))


def test_a_name_with_another_delimiter_is_one_name(tmp_path):
    assert read(write(tmp_path / "a.tsv", "caption, long\na dog\n"))[1] == [["a dog"]]
    assert read(write(tmp_path / "a.csv", "image, caption\n0.png, a dog\n"))[0].columns == ["image", "caption"]


def test_what_is_not_compressed_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\.csv\.gz .*decompressed: .*gzip"):
        read(write(tmp_path / "a.csv.gz", "caption\na dog\n"))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_a_text(text):
    assert safe_cell(text) == f"'{text}"
    assert plain_cell(safe_cell(text)) == text
    assert safe_cell(f"'{text}") == f"''{text}"  # so one apostrophe less is always the original


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_and_numbers_stay(text):
    assert safe_cell(text) == plain_cell(text) == text


@pytest.mark.parametrize("value", [-3.5, -1, None, True])
def test_values_that_are_not_texts_stay(value):
    assert safe_cell(value) is value


def test_a_written_table_has_no_cell_that_begins_like_a_formula(tmp_path):
    table = pd.DataFrame({"text": [*FORMULAS, "a dog"], "score": [-0.5] * (len(FORMULAS) + 1)})
    write_csv(tmp_path / "a.csv", table)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [*(f"'{text}" for text in FORMULAS), "a dog"]
    assert {row["score"] for row in rows} == {"-0.5"}
    assert list(table["text"]) == [*FORMULAS, "a dog"]


def test_numbers_and_missing_values_are_written_as_pandas_does(tmp_path):
    table = pd.DataFrame({"a": pd.Series([1, None, -2.5], dtype=object), "b": [1, 2, 3], "c": [None, None, None]})
    write_csv(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").read_text() == table.to_csv(index=False)


def test_every_csv_file_is_written_by_write_csv():
    package = Path(hfcomp.__file__).parent
    writers = {
        path.name
        for path in package.rglob("*.py")
        for word in ("to_csv(", "csv.writer", "csv.DictWriter")
        if word in path.read_text()
    }
    assert writers == {"writing.py"}
