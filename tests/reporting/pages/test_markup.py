"""Pieces of pages escape what they show."""

from hfcomp.reporting.pages.markup import difference_html, table_html, text_html
from hfcomp.reporting.report import Table


def test_a_difference_marks_words_and_escapes_them():
    found = difference_html("A <b>red</b> car & a dog", "A blue car & a big dog")
    assert found == "A <del>&lt;b&gt;red&lt;/b&gt;</del> <ins>blue</ins> car &amp; a <ins>big</ins> dog"
    assert difference_html("A car", "A car") == "A car"
    assert difference_html("", "new") == "<ins>new</ins>"


def test_a_table_tells_names_from_numbers_and_escapes_all():
    found = table_html(Table("<i>", ["of", "n"], [["a & b", "1"]]))
    assert "<caption>&lt;i&gt;</caption>" in found
    assert '<td class="name">a &amp; b</td><td class="number">1</td>' in found


def test_a_text_of_another_direction_turns_no_word_around_it():
    assert text_html("a & b") == "a &amp; b"
    assert text_html("שלום") == "<bdi>שלום</bdi>"
    assert text_html("a \u202eb") == "<bdi>a \\u202eb</bdi>"
    assert text_html("\u2067a\x1b[2Jb\tc\n") == "<bdi>\\u2067a\\x1b[2Jb\tc\n</bdi>"
    found = table_html(Table("\u202et", ["\u202eh"], [["\u202ec"]])) + difference_html("a", "\u202ea b")
    assert "\u202e" not in found and found.count("<bdi>") == 4
