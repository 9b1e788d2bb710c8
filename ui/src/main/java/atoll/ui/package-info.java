/** The dashboard under {@code /ui/}: server-rendered pages over core, for people who logged in. See docs/ui.md for how to add one. */
@NullMarked
package atoll.ui;

import org.jspecify.annotations.NullMarked;
