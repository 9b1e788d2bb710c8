document.querySelector("form[data-login-link]")?.requestSubmit();
