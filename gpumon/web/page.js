// Tells textual.js, before it starts, where the websocket is: beside this page, whatever proxy or tunnel is in between.
"use strict";
const terminal = document.getElementById("terminal");
terminal.dataset.sessionWebsocketUrl = new URL("ws", location.href).href.replace(/^http/, "ws");
const size = Number(new URLSearchParams(location.search).get("fontsize"));
if (size >= 6 && size <= 40) terminal.dataset.fontSize = size;
// Keys are for the screen at once, without a click into it.
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
