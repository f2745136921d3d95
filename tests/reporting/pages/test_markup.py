"""Pieces of pages escape what they show."""

from hfcomp.reporting.pages.markup import difference_html, table_html
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
