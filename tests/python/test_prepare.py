"""`./ladder prepare`: accepted and skipped pictures, and the file written. tests/train/dataset.cpp reads such files."""

import os
import resource
import signal
import struct
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

from cli import prepare
from cli.errors import Failure
from images import folder, ldata

ROOT = Path(__file__).resolve().parents[2]


def python(script, *arguments):
    """Run a script in the private Python, which has Pillow; returns its output."""
    done = subprocess.run(
        [prepare.python(), "-c", textwrap.dedent(script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Set:
    """Header and images of a data file, read without ldata.py."""

    def __init__(self, path):
        data = path.read_bytes()
        magic, version, self.size, channels, zero, self.count, self.held_out = struct.unpack_from("<8sIIIIQQ", data)
        assert (magic, version, channels, zero) == (b"LADDATA\n", 1, 3, 0)
        assert not any(data[56:128])
        self.digest = data[40:56].hex()
        step = self.size * self.size * 3
        self.images = [data[at : at + step] for at in range(128, len(data), step)]
        assert len(self.images) == self.count and len(data) == 128 + self.count * step

    def pixel(self, image, row, column):
        at = (row * self.size + column) * 3
        return tuple(self.images[image][at : at + 3])


class Prepared(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.source = self.scratch / "source"
        self.source.mkdir()
        self.out = self.scratch / "out.ldata"

    def draw(self, script):
        """Run a Pillow script that writes pictures to the source folder."""
        python("import os, sys; from PIL import Image; os.chdir(sys.argv[1])\n" + textwrap.dedent(script), self.source)

    def draw_some(self, count):
        self.draw(f"for i in range({count}): Image.linear_gradient('L').rotate(7 * i).save(f'{{i:03d}}.png')")

    def prepare(self, *arguments, status=0, **more):
        words = map(str, arguments or [self.source, "--out", self.out, "--size", 8])
        done = subprocess.run(
            [ROOT / "ladder", "prepare", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, **more
        )
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def refuses(self, *arguments, says, status=2):
        before = sorted(self.scratch.rglob("*"))
        said = self.prepare(*arguments, status=status)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn(says, said)
        self.assertEqual(sorted(self.scratch.rglob("*")), before)


class CommandLine(Prepared):
    def test_folders_without_pictures(self):
        self.refuses(says="has no picture: 0 files")
        (self.source / "notes.txt").write_text("words")
        self.refuses(says="has no picture: 1 files, none of them .png, .jpg, .jpeg")
        self.refuses(self.scratch / "nowhere", says=f"there is no folder '{self.scratch}/nowhere'")
        self.refuses(self.source / "notes.txt", says="notes.txt' is no folder")

    def test_the_output(self):
        self.draw_some(1)
        self.refuses(self.source, "--out", self.scratch / "out.png", says="a name that ends in .ldata")
        self.refuses(self.source, "--out", self.scratch / "no" / "out.ldata", says="there is no folder")
        (self.scratch / "folder.ldata").mkdir()
        self.refuses(self.source, "--out", self.scratch / "folder.ldata", "--replace", says="is no file")
        for taken in ("out.ldata", "out.png"):
            with self.subTest(taken=taken):
                (self.scratch / taken).write_text("old")
                self.refuses(says=f"{taken}' exists: --replace")
                self.assertEqual((self.scratch / taken).read_text(), "old")
                (self.scratch / taken).unlink()
        self.out.write_text("old")
        self.prepare(self.source, "--out", self.out, "--size", 8, "--replace")
        self.assertEqual(Set(self.out).count, 1)

    def test_no_picture_is_written_over(self):
        self.draw_some(1)
        picture = self.source / "000.png"
        before = picture.read_bytes()
        (self.scratch / "link.png").symlink_to(picture)
        for out in (self.source / "000.ldata", self.scratch / "link.ldata"):
            for more in ((), ("--replace",)):
                with self.subTest(out=out, more=more):
                    says = f"'{out.with_suffix('.png')}' is one of the pictures to prepare"
                    self.refuses(self.source, "--out", out, *more, says=says)
        self.assertEqual(picture.read_bytes(), before)


class Pictures(Prepared):
    def test_one_picture(self):
        self.draw("Image.new('RGB', (20, 10), (10, 20, 30)).save('one.png')")
        said = self.prepare()
        data = Set(self.out)
        self.assertEqual((data.size, data.count, data.held_out), (8, 1, 0))
        self.assertEqual(data.images[0], bytes((10, 20, 30)) * 64)
        self.assertIn("1 taken, 0 skipped\n", said)
        self.assertIn(f"1 images of 8x8 to train on, 0 held out, digest {data.digest}", said)
        self.assertEqual(sorted(p.name for p in self.scratch.iterdir()), ["out.ldata", "out.png", "source"])
        script = "import sys; from PIL import Image; i = Image.open(sys.argv[1]); print(i.size, i.getpixel((7, 7)))"
        seen = python(script, self.out.with_suffix(".png"))
        self.assertEqual(seen, "(8, 8) (10, 20, 30)\n")

    def pixels_of(self, script, *at):
        """Returns pixels of the only picture that the script draws, prepared at 8x8."""
        self.draw(script)
        self.prepare()
        return [Set(self.out).pixel(0, *each) for each in at]

    def test_gray_becomes_rgb(self):
        self.assertEqual(self.pixels_of("Image.new('L', (8, 8), 77).save('a.png')", (3, 3)), [(77, 77, 77)])

    def test_sixteen_bits_of_gray_are_scaled(self):
        pixels = self.pixels_of("Image.new('I;16', (8, 8), 200 * 257).save('a.png')", (3, 3))
        self.assertEqual(pixels, [(200, 200, 200)])

    def test_sixteen_bits_of_gray_with_a_transparent_value(self):
        """The transparent one of two values that are equal in 8 bits."""
        self.draw("""
            i = Image.new('I;16', (8, 8), 100 * 257); i.putpixel((1, 0), 100 * 257 + 1)
            i.save('a.png', transparency=100 * 257 + 1)""")
        self.prepare()
        data = Set(self.out)
        self.assertEqual([data.pixel(0, 0, 0), data.pixel(0, 0, 1)], [(100, 100, 100), (255, 255, 255)])

    def test_black_and_white(self):
        self.assertEqual(
            self.pixels_of("i = Image.new('1', (8, 8), 1); i.paste(0, (0, 0, 4, 8)); i.save('a.png')", (0, 0), (0, 7)),
            [(0, 0, 0), (255, 255, 255)],
        )

    def test_a_transparent_red_pixel_becomes_white(self):
        self.assertEqual(
            self.pixels_of(
                """
                i = Image.new('RGBA', (8, 8), (255, 0, 0, 255))
                i.putpixel((1, 0), (255, 0, 0, 0))
                i.putpixel((2, 0), (0, 0, 0, 51))
                i.save('a.png')""",
                (0, 0),
                (0, 1),
                (0, 2),
            ),
            [(255, 0, 0), (255, 255, 255), (204, 204, 204)],
        )

    def test_a_colour_under_alpha_does_not_bleed(self):
        (pixel,) = self.pixels_of(
            """
            i = Image.new('RGBA', (80, 80), (255, 0, 0, 0))
            i.paste((0, 0, 255, 255), (0, 0, 5, 80))
            i.save('a.png')""",
            (4, 0),
        )
        self.assertEqual(pixel[0], pixel[1])  # blue and white mixed, no red
        self.assertLess(pixel[0], 255)

    def test_gray_with_alpha(self):
        self.assertEqual(self.pixels_of("Image.new('LA', (8, 8), (0, 0)).save('a.png')", (3, 3)), [(255, 255, 255)])

    def test_a_palette_with_a_transparent_entry(self):
        self.assertEqual(
            self.pixels_of(
                """
                i = Image.new('P', (8, 8), 1); i.putpalette([255, 0, 0, 0, 0, 255]); i.putpixel((0, 0), 0)
                i.save('a.png', transparency=0)""",
                (0, 0),
                (0, 1),
            ),
            [(255, 255, 255), (0, 0, 255)],
        )

    def test_cmyk(self):
        (pixel,) = self.pixels_of("Image.new('CMYK', (8, 8), (0, 255, 255, 0)).save('a.jpg', quality=100)", (3, 3))
        self.assertTrue(pixel[0] > 230 and pixel[1] < 60 and pixel[2] < 60, pixel)

    def test_a_photo_stands_as_its_camera_held_it(self):
        # Left half red, right half blue, stored with orientation 6: turn by 90 degrees clockwise.
        above, below = self.pixels_of(
            """
            i = Image.new('RGB', (64, 64), 'blue'); i.paste('red', (0, 0, 32, 64))
            exif = Image.Exif(); exif[0x112] = 6
            i.save('a.jpg', quality=95, exif=exif)""",
            (0, 4),
            (7, 4),
        )
        self.assertTrue(above[0] > 200 and above[2] < 60, above)
        self.assertTrue(below[2] > 200 and below[0] < 60, below)

    def test_metadata_costs_no_picture(self):
        """EXIF that Pillow cannot write again or warns about, and PNG chunks that it refuses, with an orientation."""
        self.draw("""
            import io, struct, zlib
            oriented = (0x112, 3, 1, struct.pack('<HH', 6, 0))  # tag, type, count, value
            resolution = (0x11A, 5, 2, struct.pack('<I', 38))
            def exif(*entries, tail=b''):
                fields = b''.join(struct.pack('<HHI', *entry[:3]) + entry[3] for entry in entries)
                return b'II*\\0\\x08\\0\\0\\0' + struct.pack('<H', len(entries)) + fields + bytes(4) + tail
            def picture(k, format):
                image = Image.new('RGB', (64, 64), (0, 0, 255)); image.paste((255, 40 * k, 0), (0, 0, 32, 64))
                file = io.BytesIO(); image.save(file, format); return file.getvalue()
            def jpeg(name, k, exif):
                whole, app1 = picture(k, 'JPEG'), b'Exif\\0\\0' + exif
                open(name, 'wb').write(whole[:2] + b'\\xff\\xe1' + struct.pack('>H', len(app1) + 2) + app1 + whole[2:])
            def png(name, k, *chunks):
                whole = picture(k, 'PNG')
                made = b''.join(struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
                                for kind, data in chunks)
                open(name, 'wb').write(whole[:33] + made + whole[33:])
            jpeg('0_text_of_type_double.jpg', 0, exif(oriented, (0x13B, 12, 1, struct.pack('<I', 6))))
            jpeg('1_two_resolutions.jpg', 1, exif(oriented, resolution, tail=struct.pack('<IIII', 72, 1, 72, 1)))
            jpeg('2_two_orientations.jpg', 2, exif((0x112, 3, 2, struct.pack('<HH', 6, 6))))
            orientation = (b'eXIf', exif(oriented))
            png('3_large_text.png', 3, (b'zTXt', b'prompt\\0\\0' + zlib.compress(bytes(2_000_000))), orientation)
            png('4_large_profile.png', 4, (b'iCCP', b'name\\0\\0' + zlib.compress(bytes(2_000_000))), orientation)
            png('5_short_chunks.png', 5, (b'pHYs', b'1'), (b'cHRM', b'1'), (b'acTL', b'1'), orientation)
            png('6_no_exif.png', 6, (b'eXIf', b'II*'))""")
        said = self.prepare()
        self.assertIn("7 taken, 0 skipped\n", said)
        self.assertRegex(said, r"\A(ladder: .*\n)*\Z")
        data = Set(self.out)
        order = sorted(range(7), key=lambda i: data.pixel(i, 0, 0)[1])
        for k, image in enumerate(order):
            turned = k < 6
            red, blue = data.pixel(image, 0, 0), data.pixel(image, 7, 0)
            self.assertTrue(abs(red[1] - 40 * k) < 8, k)
            self.assertEqual(blue[2] > 200 and blue[0] < 60, turned, k)

    def test_an_orientation_that_is_none_is_no_turn(self):
        for orientation in (0, 1, 9):
            with self.subTest(orientation=orientation):
                (left,) = self.pixels_of(
                    f"""
                    i = Image.new('RGB', (64, 64), 'blue'); i.paste('red', (0, 0, 32, 64))
                    exif = Image.Exif(); exif[0x112] = {orientation}
                    i.save('a.jpg', quality=95, exif=exif)""",
                    (4, 0),
                )
                self.assertTrue(left[0] > 200 and left[2] < 60, left)
                self.out.unlink()
                self.out.with_suffix(".png").unlink()

    def test_every_orientation(self):
        """A picture stored turned, with the matching orientation, is turned back."""
        self.draw("""
            i = Image.new('RGB', (64, 64), 'white'); i.paste('red', (0, 0, 16, 32)); i.paste('blue', (32, 0, 64, 16))
            from PIL.Image import Transpose
            stored = {1: [], 2: [Transpose.FLIP_LEFT_RIGHT], 3: [Transpose.ROTATE_180], 4: [Transpose.FLIP_TOP_BOTTOM],
                      5: [Transpose.TRANSPOSE], 6: [Transpose.ROTATE_90], 7: [Transpose.TRANSVERSE],
                      8: [Transpose.ROTATE_270]}
            for orientation, turns in stored.items():
                exif = Image.Exif(); exif[0x112] = orientation
                turned = i
                for turn in turns: turned = turned.transpose(turn)
                turned.save(f'{orientation}.png', exif=exif)""")
        self.assertIn("1 taken, 7 skipped (7 twice there)", self.prepare())

    def test_the_square_in_the_middle(self):
        # 32 x 16 pixels; the outer quarters, 8 columns at each side, are green.
        self.draw("""
            i = Image.new('RGB', (32, 16), 'green'); i.paste('white', (8, 0, 24, 16)); i.save('wide.png')
            i.rotate(90, expand=True).save('high.png')
            i.resize((32, 16)).crop((8, 0, 24, 16)).save('square.png')""")
        said = self.prepare()
        self.assertEqual(Set(self.out).images, [bytes([255]) * 192])
        self.assertIn("skipped square.png: the same pixels as high.png", said)
        self.assertIn("1 taken, 2 skipped (2 twice there)", said)

    def test_reduced_by_averaging(self):
        # A chess board of single pixels averages to gray; a filter that samples some pixels finds black or white.
        (pixel,) = self.pixels_of(
            "i = Image.new('L', (128, 128)); "
            "[i.putpixel((x, y), 255 * ((x + y) % 2)) for x in range(128) for y in range(128)]; "
            "i.save('a.png')",
            (4, 4),
        )
        self.assertTrue(all(abs(each - 127.5) < 3 for each in pixel), pixel)

    def test_small_ones_are_enlarged_and_counted(self):
        self.draw("Image.new('RGB', (1, 1), 'red').save('dot.png')")
        self.assertIn("1 of those taken were smaller than 8x8", self.prepare())
        self.assertEqual(Set(self.out).images[0], bytes((255, 0, 0)) * 64)

    def test_broken_files_are_named_and_skipped(self):
        self.draw("""
            os.mkdir('deep')
            Image.new('RGB', (64, 64), 'red').save('good.JPEG')
            Image.effect_noise((64, 64), 90).save('noise.png')
            whole = open('noise.png', 'rb').read()
            open('deep/cut.png', 'wb').write(whole[:len(whole) // 2])
            open('flipped.png', 'wb').write(whole[:200] + bytes([whole[200] ^ 255]) + whole[201:])
            open('empty.jpg', 'wb').close()
            open('text.png', 'w').write('words')
            Image.new('RGB', (8, 8), 'blue').save('other.gif')
            Image.new('RGB', (8, 8), 'blue').save('jpeg_by_name.jpg', 'GIF')
            open('headless.png', 'wb').write(whole[:20] + bytes([whole[20] ^ 255]) + whole[21:])
            os.symlink('nowhere.png', 'dangling.png')
            os.remove('noise.png')""")
        (self.source / "notes.txt").write_text("words")
        said = self.prepare()
        self.assertEqual(Set(self.out).count, 1)
        for name in ("deep/cut.png", "flipped.png", "empty.jpg", "text.png", "jpeg_by_name.jpg", "dangling.png"):
            self.assertRegex(said, f"(?m)^ladder: skipped {name}: \\S")
        self.assertIn("skipped text.png: it is no PNG or JPEG\n", said)
        self.assertIn("skipped headless.png: its header is broken\n", said)
        self.assertIn("skipped flipped.png: it is broken: ", said)
        self.assertIn("skipped dangling.png: No such file or directory\n", said)
        self.assertIn("1 taken, 7 skipped (7 not readable); 2 other files left alone\n", said)

    def test_no_usable_picture(self):
        (self.source / "a.png").write_text("words")
        (self.source / "b\n.png").write_text("words")
        said = self.prepare(status=1)
        self.assertEqual(
            said.splitlines(),
            [
                "ladder: skipped a.png: it is no PNG or JPEG",
                "ladder: skipped b?.png: it is no PNG or JPEG",
                f"ladder: '{self.source}' has no usable picture: 2 skipped (2 not readable)",
            ],
        )
        self.assertEqual([p.name for p in self.scratch.iterdir()], ["source"])


class TheSameFile(Prepared):
    def test_whatever_the_order_of_the_listing(self):
        self.draw_some(40)
        (self.source / "deep").mkdir()
        for i in range(0, 40, 3):
            (self.source / f"{i:03d}.png").rename(self.source / "deep" / f"{i:03d}.png")
        self.prepare()
        backwards = self.scratch / "backwards.ldata"
        said = python(
            """
            import os, sys
            from images import folder, __main__ as program
            scandir, seen = os.scandir, []
            class backwards:
                def __init__(self, path):
                    entries = sorted(scandir(path), key=lambda entry: entry.name, reverse=True)
                    seen.extend(entry.name for entry in entries)
                    self.entries = iter(entries)
                def __enter__(self): return self.entries
                def __exit__(self, *error): pass
                def __iter__(self): return self.entries
                def __next__(self): return next(self.entries)
                def close(self): pass
            os.scandir = backwards
            program.main(["folder", sys.argv[1], sys.argv[2], "8"])
            print(seen[0], len(seen))""",
            self.source,
            backwards,
        )
        self.assertEqual(said, "deep 41\n")  # folders sort after digits: the order was reversed
        self.assertEqual(backwards.read_bytes(), self.out.read_bytes())
        self.assertEqual(backwards.with_suffix(".png").read_bytes(), self.out.with_suffix(".png").read_bytes())

    def test_names_and_copies_do_not_choose_who_is_held_out(self):
        self.draw_some(60)
        self.prepare()
        before = Set(self.out)
        for i, path in enumerate(sorted(self.source.iterdir())):
            path.rename(self.source / f"renamed_{999 - i}.png")
        self.prepare(self.source, "--out", self.out, "--size", 8, "--replace")
        after = Set(self.out)
        self.assertEqual((before.count, before.held_out), (60, 3))
        self.assertEqual(set(before.images[-3:]), set(after.images[-3:]))
        self.assertNotEqual(before.images, after.images)  # each part is sorted by name

    def test_as_dataset_h_reads_it(self):
        """The same file as in tests/train/dataset.cpp."""
        python(
            """
            import sys
            from pathlib import Path
            from images import ldata
            ldata.write(Path(sys.argv[1]), 2, [bytes(range(12 * i, 12 * i + 12)) for i in range(4)])""",
            self.out,
        )
        data = Set(self.out)
        self.assertEqual((data.count, data.held_out, [image[0] for image in data.images]), (4, 1, [0, 24, 36, 12]))
        self.assertEqual(data.digest, "96b62a20665eb5a7e6d9ace6f56aee40")
        self.assertEqual(ldata.read_header(self.out), ldata.Header(2, 4, 1, data.digest))


class HeldOut(unittest.TestCase):
    def test_share(self):
        for count, wanted in ((1, 0), (2, 1), (3, 1), (20, 1), (29, 1), (31, 2), (100, 5), (1174, 59)):
            digests = [os.urandom(32) for _ in range(count)]
            chosen = ldata.held_out(digests)
            self.assertEqual(len(chosen), wanted)
            self.assertEqual(chosen, sorted(chosen))
            if chosen:
                rest = [digest for i, digest in enumerate(digests) if i not in chosen]
                self.assertLess(max(digests[i] for i in chosen), min(rest))


class FullDisk(Prepared):
    def test_the_old_files_stay(self):
        self.draw_some(60)
        self.out.write_text("old data")
        self.out.with_suffix(".png").write_text("old picture")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

        said = self.prepare(self.source, "--out", self.out, "--size", 8, "--replace", status=1, preexec_fn=limit)
        self.assertEqual(said, f"ladder: '{self.out}' was not written: File too large\n")
        self.assertEqual(self.out.read_text(), "old data")
        self.assertEqual(self.out.with_suffix(".png").read_text(), "old picture")
        self.assertEqual(sorted(p.name for p in self.scratch.iterdir()), ["out.ldata", "out.png", "source"])


class Interrupt(Prepared):
    def children_of(self, pid):
        """Returns the child processes that run images/. ./ladder starts others before them."""
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return [child for child in children if b"images\0folder" in Path(f"/proc/{child}/cmdline").read_bytes()]
        except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            return []

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one process does all")
    def test_it_says_so_and_leaves_nothing(self):
        self.draw(
            "i = Image.effect_noise((1500, 1500), 90)\ni.save('0.png')\n"
            "for k in range(1, 200): os.link('0.png', f'{k}.png')"
        )
        process = subprocess.Popen(
            [ROOT / "ladder", "prepare", self.source, "--out", self.out],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = []
        while not (program and self.children_of(program[0])):  # until the reader of pictures has workers
            self.assertIsNone(process.poll())
            program = self.children_of(process.pid)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        self.assertEqual((process.returncode, said), (130, "ladder: interrupted\n"))
        self.assertEqual([p.name for p in self.scratch.iterdir()], ["source"])
        self.assertFalse(Path(f"/proc/{program[0]}").exists())


class Header(Prepared):
    """Sample sets that ./ladder refuses and makes anew. The trainer's own checks are in train/dataset.cpp."""

    def refused(self, data, says):
        self.out.write_bytes(data)
        with self.assertRaisesRegex(Failure, says):
            ldata.read_header(self.out)

    def test_truncated_and_corrupt_ones(self):
        good = struct.pack("<8sIIIIQQ", b"LADDATA\n", 1, 2, 3, 0, 4, 1) + bytes(88) + bytes(48)
        self.out.write_bytes(good)
        self.assertEqual(ldata.read_header(self.out).count, 4)
        self.refused(b"", "is no data set")
        self.refused(good[:100], "is no data set")
        self.refused(b"X" + good[1:], "is no data set")
        self.refused(good[:-1], "has 175 bytes, its header says 176")
        self.refused(good + b"x", "has 177 bytes")
        self.refused(good[:8] + b"\2" + good[9:], "has version 2 of the format")
        for at, value in ((12, 0), (16, 4), (20, 1), (24, 0), (32, 4), (56, 1), (127, 1)):
            self.refused(good[:at] + bytes([value]) + good[at + 1 :], "has a corrupt header")
        with self.assertRaisesRegex(Failure, "cannot be read: No such file"):
            ldata.read_header(self.scratch / "nowhere.ldata")


class Find(Prepared):
    def test_what_a_folder_has(self):
        for name in ("b.PNG", "a.jpeg", "c.txt", "x/a.jpg", "x/y/z.png", "\udcff.png"):
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.source / "loop").symlink_to(self.source)
        os.mkfifo(self.source / "pipe.png")
        found = folder.find(self.source)
        names = [name for name, _ in found.pictures]
        self.assertEqual(names, ["a.jpeg", "b.PNG", "x/a.jpg", "x/y/z.png", "\udcff.png"])
        self.assertEqual((found.others, found.unread), (2, []))

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_folder_that_may_not_be_read(self):
        (self.source / "shut").mkdir(mode=0)
        self.assertEqual(folder.find(self.source).unread, [("shut", "Permission denied")])


class SampleSet(Prepared):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(prepare, "DATA", self.scratch / "data")
        patch.start()
        self.addCleanup(patch.stop)
        said = mock.patch.object(prepare.say, "line")
        self.said = said.start()
        self.addCleanup(said.stop)

    def test_it_is_made_once_and_is_the_same_each_time(self):
        path = prepare.sample_set(16)
        self.assertEqual(path, self.scratch / "data" / "emoji-16.ldata")
        data = Set(path)
        self.assertEqual(data.size, 16)
        self.assertTrue(1000 <= data.count <= 1500, data.count)
        self.assertEqual(data.held_out, round(data.count / 20))
        self.assertEqual(len(set(data.images)), data.count)
        corners = [image[:3] for image in data.images]
        self.assertGreater(corners.count(b"\xff\xff\xff"), 0.8 * data.count)  # on white
        with mock.patch.object(prepare, "_run", side_effect=AssertionError("made again")):
            self.assertEqual(prepare.sample_set(16), path)
        first = path.read_bytes()
        path.write_bytes(first[:-1])
        self.assertEqual(prepare.sample_set(16).read_bytes(), first)
        self.said.assert_called_once()
        self.assertIn("making it anew", self.said.call_args[0][0])

    def test_a_font_without_bitmaps(self):
        with mock.patch.object(prepare, "_font", return_value=ROOT / "LICENSE"):
            with self.assertRaisesRegex(Failure, "the sample set was not made"):
                prepare.sample_set(16)
        self.assertEqual(list((self.scratch / "data").iterdir()), [])

    def test_no_font_and_no_debian(self):
        with (
            mock.patch.object(prepare, "_installed_font", return_value=None),
            mock.patch.object(prepare.debian, "present", return_value=False),
        ):
            with self.assertRaisesRegex(Failure, "no NotoColorEmoji.ttf: install"):
                prepare.sample_set(16)
