package atoll.core.process;

import atoll.core.AtollException;

/** In characters. */
public record TerminalSize(int columns, int rows) {
    public static final TerminalSize DEFAULT = new TerminalSize(80, 24);
    private static final int MOST = 10_000;

    public TerminalSize {
        if (columns < 1 || columns > MOST || rows < 1 || rows > MOST) {
            throw AtollException.invalid(
                    "terminal: " + columns + " columns and " + rows + " rows (expected: 1 to " + MOST + " of each)",
                    "Correct the size.");
        }
    }
}
