"""`./ladder clangd cuda|emulator`: which build an editor sees."""

from . import build, say
from .options import Parser


def main(arguments):
    parser = Parser(
        "clangd",
        description="Picks the build whose compile commands an editor sees: of kernels for a GPU, or for the emulator. Until "
        "then it is the build that was configured first.",
    )
    parser.add_argument("preset", choices=build.SEEN)
    preset = parser.parse_args(arguments).preset
    build.configure(preset)
    build.show_to_editors(preset)
    say.line(f"editors see build/{preset} from clangd's next start on")
    return 0
