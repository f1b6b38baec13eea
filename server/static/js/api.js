// The HTTP API's description, drawn from this server's own OpenAPI document.
"use strict";

window.addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: document.getElementById("api").dataset.document,
    dom_id: "#api",
    deepLinking: true,
    validatorUrl: null,
    syntaxHighlight: false,
  });
});
