package atoll.core;

import java.util.List;

/** API keys. All but {@link #authenticate} need the scope ADMIN. */
public interface Keys {
    /** The caller behind a secret as it came with the request; fails with {@code UNAUTHENTICATED}, without saying which part was wrong. */
    Caller authenticate(String secret);

    /** Makes one that allows no more than its maker's does; its secret is in the answer alone. */
    CreatedKey create(Caller caller, CreateKey request);

    /** Those of the project that were not revoked, expired ones too, the newest first. */
    List<ApiKey> list(Caller caller);

    ApiKey get(Caller caller, KeyId id);

    /** From now on it opens nothing. The operator's key can't be revoked: it is what the installation's data folder says. */
    void revoke(Caller caller, KeyId id);
}
