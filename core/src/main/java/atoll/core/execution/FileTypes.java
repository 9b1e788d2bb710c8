package atoll.core.execution;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** MIME types by the end of a file's name: of what programs make for people, and not a word about the content. */
final class FileTypes {
    private static final String UNKNOWN = "application/octet-stream";

    private static final Map<String, String> BY_END = read("""
            text/plain txt log
            text/markdown md
            text/csv csv
            text/tab-separated-values tsv
            text/html html htm
            text/css css
            text/javascript js mjs cjs
            text/x-typescript ts tsx
            text/x-python py
            text/x-go go
            text/x-rust rs
            text/x-java java
            text/x-c c h
            text/x-sh sh
            application/sql sql
            application/json json
            application/x-ipynb+json ipynb
            application/x-ndjson jsonl ndjson
            application/xml xml
            application/yaml yaml yml
            application/toml toml
            application/x-tex tex
            application/pdf pdf
            application/zip zip
            application/gzip gz tgz
            application/x-bzip2 bz2
            application/x-xz xz
            application/x-tar tar
            application/zstd zst
            application/x-7z-compressed 7z
            image/png png
            image/jpeg jpg jpeg
            image/gif gif
            image/webp webp
            image/svg+xml svg
            image/bmp bmp
            image/tiff tif tiff
            image/x-icon ico
            image/avif avif
            audio/mpeg mp3
            audio/wav wav
            audio/ogg ogg
            audio/flac flac
            video/mp4 mp4
            video/webm webm
            video/quicktime mov
            video/x-msvideo avi
            application/vnd.openxmlformats-officedocument.spreadsheetml.sheet xlsx
            application/vnd.openxmlformats-officedocument.wordprocessingml.document docx
            application/vnd.openxmlformats-officedocument.presentationml.presentation pptx
            application/vnd.ms-excel xls
            application/msword doc
            application/vnd.ms-powerpoint ppt
            application/vnd.apache.parquet parquet
            application/vnd.apache.arrow.file arrow feather
            application/vnd.sqlite3 sqlite db
            application/wasm wasm
            application/x-numpy npy npz
            application/x-hdf5 h5 hdf5
            application/x-pickle pkl pickle
            application/rtf rtf
            application/epub+zip epub
            """);

    private FileTypes() {}

    static String of(String path) {
        int dot = path.lastIndexOf('.');
        if (dot < path.lastIndexOf('/')) {
            return UNKNOWN;
        }
        return BY_END.getOrDefault(path.substring(dot + 1).toLowerCase(Locale.ROOT), UNKNOWN);
    }

    private static Map<String, String> read(String table) {
        var types = new HashMap<String, String>();
        table.lines().map(line -> line.split(" ")).forEach(words -> {
            for (int i = 1; i < words.length; i++) {
                types.put(words[i], words[0]);
            }
        });
        return Map.copyOf(types);
    }
}
