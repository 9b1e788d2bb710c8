package atoll.core;

import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.Optional;
import java.util.function.Predicate;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Tokens by HMAC over purpose and sandbox. */
final class TokenService implements SandboxTokens {
    private static final int TOKEN_BYTES = 16;

    private final byte[] key;
    private final SandboxService sandboxes;

    TokenService(byte[] key, SandboxService sandboxes) {
        this.key = key.clone();
        this.sandboxes = sandboxes;
    }

    @Override
    public String token(Caller caller, SandboxId sandbox, String purpose) {
        caller.require(Scope.EXECUTE);
        Sandbox owned = sandboxes.get(caller, sandbox);
        return derive(owned.id(), purpose);
    }

    @Override
    public Bearer authenticate(SandboxId sandbox, String purpose, String token) {
        byte[] expected = derive(sandbox, purpose).getBytes(StandardCharsets.US_ASCII);
        if (!MessageDigest.isEqual(expected, token.getBytes(StandardCharsets.UTF_8))) {
            throw new AtollException(
                    ErrorCode.UNAUTHENTICATED,
                    "The token is missing or not valid for sandbox " + sandbox + ".",
                    "",
                    "Use the token that came with the sandbox.");
        }
        return anonymous(sandbox);
    }

    @Override
    public Bearer anonymous(SandboxId sandbox) {
        return sandboxes
                .find(sandbox)
                .map(TokenService::bearer)
                .orElseThrow(() -> new AtollException(
                        ErrorCode.SANDBOX_NOT_FOUND,
                        "sandbox: " + sandbox + " was not found",
                        "There is none of that id, or it ended so long ago that its record was removed.",
                        ""));
    }

    @Override
    public Optional<Bearer> find(String purpose, Predicate<String> fits) {
        for (LiveSandbox alive : sandboxes.live()) {
            Sandbox sandbox = alive.sandbox();
            if (sandbox.state() != SandboxState.ENDED && fits.test(derive(sandbox.id(), purpose))) {
                return Optional.of(bearer(sandbox));
            }
        }
        return Optional.empty();
    }

    /** Not a key on record: it is named after the sandbox that it is for. */
    private static Bearer bearer(Sandbox sandbox) {
        return new Bearer(
                sandbox.id(),
                new Caller(sandbox.project(), new KeyId(sandbox.id().uuid()), EnumSet.of(Scope.READ, Scope.EXECUTE)));
    }

    private String derive(SandboxId sandbox, String purpose) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            byte[] whole = mac.doFinal((purpose + "\n" + sandbox).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(whole, 0, TOKEN_BYTES);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java platform has HmacSHA256", e);
        }
    }
}
