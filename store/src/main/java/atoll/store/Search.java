package atoll.store;

import java.sql.SQLException;

/**
 * What a {@link Select} looks for where no index helps: rows are looked at one by one, with a few of their columns, and those that are taken are read whole.
 *
 * @param columns what has to be looked at, besides time and id
 * @param takes says whether a row is wanted; it reads long columns last, and only if it must
 * @param load the columns of what is found
 */
record Search<T>(String columns, Takes takes, String load, Sql.Mapping<T> mapping) {
    interface Takes {
        boolean test(Row row) throws SQLException;
    }
}
