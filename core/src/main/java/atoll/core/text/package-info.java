/** Text as a person would see it, from bytes that a program printed. */
@NullMarked
package atoll.core.text;

import org.jspecify.annotations.NullMarked;
