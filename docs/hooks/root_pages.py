"""Pages at the root of the repository, where people look for them, as pages of the site."""

from pathlib import Path

from mkdocs.structure.files import File, Files

PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def on_files(files: Files, config) -> Files:
    root = Path(config.config_file_path).parent
    for name in PAGES:
        text = (root / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files
