from __future__ import annotations

import csv
import hashlib
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hfcomp.negatives.concreteness import (
    FILE,
    LICENSE,
    URL,
    ConcretenessRatings,
    Coverage,
    concreteness_column,
    download_ratings,
)
from hfcomp.negatives.keywords.tables import CONCEPTS, REPLACEMENTS

HEADER = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos"
# Invented numbers; the published ones may not be shipped.
ROWS = [
    "dog\t0\t4.5\t0.4\t0\t30\t1\t10\tNoun",
    "Dutch oven\t1\t4.25\t0.4\t0\t30\t1\t0\t#N/A",
    "sign\t0\t4.0\t0.4\t0\t30\t1\t10\tVerb",
    "of\t0\t1.5\t0.4\t0\t30\t1\t10\tPreposition",
    "up\t0\t3.5\t0.4\t0\t30\t1\t10\tAdverb",
    "bus\t0\t4.75\t0.4\t0\t30\t1\t10\tNoun",
    "house\t0\t5\t0.4\t0\t30\t1\t10\tNoun",
    "puppy\t0\t4.125\t0.4\t0\t30\t1\t10\tNoun",
    "pas\t0\t2\t0.4\t0\t30\t1\t10\tNoun",
]


@pytest.fixture
def write(tmp_path):
    def write(*lines: str, ending: str = "\r\n") -> Path:
        path = tmp_path / "ratings.txt"
        path.write_bytes("".join(line + ending for line in lines).encode("utf-8"))
        return path

    return write


@pytest.fixture
def ratings(write) -> ConcretenessRatings:
    return ConcretenessRatings.from_file(write(HEADER, *ROWS))


@pytest.fixture(scope="module")
def norms() -> Path:
    folder = os.environ.get("HFCOMP_REAL_DATA")
    if not folder:
        pytest.skip(
            "HFCOMP_REAL_DATA is not set; it names a folder with "
            "concreteness/Concreteness_ratings_Brysbaert_et_al_BRM.txt"
        )
    return Path(folder) / "concreteness" / "Concreteness_ratings_Brysbaert_et_al_BRM.txt"


@pytest.fixture(scope="module")
def published_ratings(norms) -> ConcretenessRatings:
    return ConcretenessRatings.from_file(norms)


# The published table


def test_published_table_is_read_whole(published_ratings):
    assert len(published_ratings) == 39_954


@pytest.mark.parametrize(
    ("expression", "word", "source"),
    [
        ("fire hydrant", "fire hydrant", "surface"),
        ("dog", "dog", "surface"),
        ("dogs", "dogs", "surface"),
        ("under", "under", "surface"),
        ("essentialness", "essentialness", "surface"),
        ("ZIP code", "ZIP code", "surface"),
        ("skis", "ski", "lemma"),
        ("fire hydrants", "fire hydrant", "lemma"),
        ("stop sign", "sign", "head"),
        ("stop signs", "sign", "head_lemma"),
    ],
)
def test_published_values(norms, published_ratings, expression, word, source):
    """As the file has them: no value of the norms stands here, see NOTICE."""
    match = published_ratings.match(expression)
    assert match is not None
    assert (match.rating, match.source) == (values_of(norms)[word], source)


def values_of(norms: Path) -> dict[str, float]:
    with norms.open(encoding="utf-8", newline="") as lines:
        return {row["Word"]: float(row["Conc.M"]) for row in csv.DictReader(lines, delimiter="\t")}


def test_no_published_value_stands_in_the_project(norms):
    """Beside its word and with two decimals, as the norms have it: they may not be passed on in parts (NOTICE)."""
    root, values = Path(__file__).parents[2], {word.lower(): value for word, value in values_of(norms).items()}
    said = re.compile(r"""([A-Za-z]+)["'`)]*\s*[:,|=(\t]?\s*[\[(]*([1-5]\.\d\d)\b""")
    files = [path for name in ("hfcomp", "tests", "docs", "recipes") for path in sorted((root / name).rglob("*"))]
    texts = [path for path in files if path.suffix in (".py", ".md", ".yaml") and "published" not in path.parts]
    leaks = [
        f"{path.relative_to(root)}: {word} {value}"
        for path in texts
        for word, value in said.findall(path.read_text(encoding="utf-8"))
        if values.get(word.lower()) == float(value)
    ]
    assert len(texts) > 500 and not leaks


def test_the_keywords_without_a_published_rating_are_known(published_ratings):
    keywords = {keyword for concept in CONCEPTS for keyword in REPLACEMENTS[concept]}
    assert {keyword for keyword in keywords if published_ratings.lookup(keyword) is None} == {
        "aeroplane",
        "in front of",
    }


# Looking up


@pytest.mark.parametrize(
    ("expression", "rating", "entry", "source"),
    [
        ("dog", 4.5, "dog", "surface"),
        ("DOG", 4.5, "dog", "surface"),
        ("dutch Oven", 4.25, "dutch oven", "surface"),
        (" dutch  oven ", 4.25, "dutch oven", "surface"),
        ("dogs", 4.5, "dog", "lemma"),
        ("buses", 4.75, "bus", "lemma"),
        ("houses", 5.0, "house", "lemma"),
        ("puppies", 4.125, "puppy", "lemma"),
        ("Dutch ovens", 4.25, "dutch oven", "lemma"),
        ("stop sign", 4.0, "sign", "head"),
        ("a very big dog", 4.5, "dog", "head"),
        ("stop signs", 4.0, "sign", "head_lemma"),
    ],
)
def test_order_of_the_lookup(ratings, expression, rating, entry, source):
    match = ratings.match(expression)
    assert match is not None
    assert (match.rating, match.entry, match.source) == (rating, entry, source)
    assert ratings.lookup(expression) == rating


@pytest.mark.parametrize("expression", ["in front of", "pick up", "oven", "pass", "dogged", "hot-dog", "cat", "", " "])
def test_no_rating_is_none(ratings, expression):
    assert ratings.lookup(expression) is None


def test_a_closed_class_word_has_its_own_rating(ratings):
    assert ratings.lookup("of") == 1.5


def test_the_whole_expression_goes_before_its_head():
    ratings = ConcretenessRatings({"hot dog": 4.0, "dog": 5.0, "hot dogs": 3.0})
    assert [ratings.lookup(text) for text in ("hot dog", "hot dogs", "big dog")] == [4.0, 3.0, 5.0]


# Reading


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_endings_and_byte_order_mark(write, ending):
    ratings = ConcretenessRatings.from_file(write("\ufeff" + HEADER, *ROWS, ending=ending))
    assert len(ratings) == len(ROWS)
    assert ratings.lookup("stop sign") == 4.0


def test_columns_are_found_by_name(write):
    ratings = ConcretenessRatings.from_file(write("Dom_Pos\tConc.M\tWord", "Noun\t4.5\tdog"))
    assert ratings.lookup("dog") == 4.5


def test_a_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt.*doi:10\.3758/s13428-013-0403-5.*license"):
        ConcretenessRatings.from_file(tmp_path / "nowhere.txt")


def test_a_wrong_header_names_what_was_found(write):
    with pytest.raises(ValueError, match=r"'Conc\.M'.*\['Word', 'Mean', 'Dom_Pos'\]"):
        ConcretenessRatings.from_file(write("Word\tMean\tDom_Pos", "dog\t4.5\tNoun"))
    with pytest.raises(ValueError, match=r"'Word', 'Conc\.M', 'Dom_Pos'.*\['Word,Conc\.M,Dom_Pos'\]"):
        ConcretenessRatings.from_file(write("Word,Conc.M,Dom_Pos", "dog,4.5,Noun"))


def test_an_empty_file_raises(write):
    with pytest.raises(ValueError, match="lacks the column"):
        ConcretenessRatings.from_file(write())


@pytest.mark.parametrize("value", ["four", "", "nan", "0.5", "5.5", "4,5"])
def test_a_bad_rating_names_its_row(write, value):
    bad = f"cat\t0\t{value}\t0.4\t0\t30\t1\t10\tNoun"
    with pytest.raises(ValueError, match=rf"line 3: .*Conc\.M .*'cat' .*'{value}'; .* 1 to 5"):
        ConcretenessRatings.from_file(write(HEADER, ROWS[0], bad))


def test_a_short_row_names_its_line(write):
    with pytest.raises(ValueError, match="line 3 .*2 columns.* 9"):
        ConcretenessRatings.from_file(write(HEADER, ROWS[0], "cat\t0"))


def test_a_word_rated_twice_names_its_line(write):
    with pytest.raises(ValueError, match="line 4: 'DOG' .*twice"):
        ConcretenessRatings.from_file(write(HEADER, *ROWS[:2], ROWS[0].replace("dog", "DOG")))


def test_a_spreadsheet_is_refused(tmp_path):
    path = tmp_path / "ratings.xlsx"
    path.write_bytes(b"PK\x03\x04\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        ConcretenessRatings.from_file(path)


def test_ratings_given_directly_are_checked():
    with pytest.raises(ValueError, match="'dog' .*twice"):
        ConcretenessRatings({"dog": 4.0, "Dog": 4.5})
    with pytest.raises(ValueError, match="'dog' .*7"):
        ConcretenessRatings({"dog": 7})


# The column


def test_the_column_is_aligned_and_everything_is_counted(ratings):
    column, coverage = concreteness_column([["dog", "cat", ""], ["dogs", "stop sign", "cat"], []], ratings)
    assert column == [[4.5, None, None], [4.5, 4.0, None], []]
    assert coverage == Coverage(sources={"surface": 1, "lemma": 1, "head": 1}, missing={"cat": 2}, empty=1)
    assert (coverage.num_rated, coverage.num_missing) == (3, 2)
    assert str(coverage) == (
        "3 of 5 keywords have a concreteness rating (head 1, lemma 1, surface 1); missing: 'cat' 2; 1 empty keywords"
    )


def test_every_missing_word_is_named_as_long_as_they_are_few():
    few = Coverage({}, {f"word{number:02}": 1 for number in range(33)}, 0)
    assert all(f"'word{number:02}' 1" in str(few) for number in range(33))
    many = Coverage({}, {f"word{number:02}": 1 for number in range(50)}, 0)
    assert "'word39' 1 and 10 rarer words" in str(many) and "word40" not in str(many)


@pytest.mark.parametrize("row", ["dog", None, ["dog", None]])
def test_a_row_that_is_no_list_of_strings_is_named(ratings, row):
    with pytest.raises(TypeError, match="'negative_keywords' .* row 1"):
        concreteness_column([["dog"], row], ratings)


# The table on request: the license first, from a server, into the cache, checked by hash
TABLE = b"Word\tConc.M\tDom_Pos\r\ndog\t4.5\tNoun\r\n"
HASH = hashlib.sha256(TABLE).hexdigest()


@pytest.fixture
def server():
    """A server on loopback that counts requests; its answer can be set."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            serving.asked += 1
            status, content = serving.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    serving.asked, serving.answer = 0, (200, TABLE)
    serving.url = f"http://127.0.0.1:{serving.server_port}/ratings.txt"
    thread = threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


def test_the_license_and_the_place_are_shown_before_the_download(server, tmp_path):
    logged: list[tuple[str, int]] = []
    path = download_ratings(
        tmp_path / "new", log=lambda line: logged.append((line, server.asked)), url=server.url, sha256=HASH
    )
    assert logged == [(LICENSE, 0), (f"downloading {server.url} to {path}", 0)]
    assert URL.startswith("http://crr.ugent.be/")
    assert "CC BY-NC-ND 3.0" in LICENSE and path == tmp_path / "new" / FILE
    assert ConcretenessRatings.from_file(path).lookup("dog") == 4.5


def test_a_second_call_reads_the_cache_and_shows_the_license_again(server, tmp_path):
    logged: list[str] = []
    for _ in range(2):
        download_ratings(tmp_path, log=logged.append, url=server.url, sha256=HASH)
    assert server.asked == 1 and logged.count(LICENSE) == 2


def test_a_damaged_file_is_downloaded_again(server, tmp_path):
    (tmp_path / FILE).write_bytes(TABLE[:-3])
    path = download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)
    assert path.read_bytes() == TABLE


def test_another_file_is_not_kept(server, tmp_path):
    server.answer = (200, b"<html>not the table</html>")
    with pytest.raises(ValueError, match=f"{HASH}, .*26 bytes.*not kept"):
        download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)
    assert not list(tmp_path.iterdir())


def test_a_server_that_fails_is_named_with_the_other_way(server, tmp_path):
    server.answer = (404, b"")
    with pytest.raises(OSError, match=r"ratings.txt .*404.*doi:10\.3758/s13428-013-0403-5"):
        download_ratings(tmp_path, log=lambda line: None, url=server.url, sha256=HASH)


def test_no_server_at_all(tmp_path):
    with pytest.raises(OSError, match="not .*downloaded"):
        download_ratings(tmp_path, log=lambda line: None, url="http://127.0.0.1:9/x", sha256=HASH, timeout=2)


def test_other_addresses_are_refused(tmp_path):
    with pytest.raises(ValueError, match="http://"):
        download_ratings(tmp_path, log=lambda line: None, url=f"file://{tmp_path}/x", sha256=HASH)
