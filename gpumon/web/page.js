// Tells textual.js, before it starts, where the websocket is: beside this page, whatever proxy or tunnel is in between.
// The key of the link is behind its #, which no server gets to see, and goes into the path of the websocket alone.
"use strict";
const KEPT = `gpumon-key ${location.pathname}`; // of this tab and this server: other ports have a storage of their own
const given = new URLSearchParams(location.hash.slice(1)).get("key");
let key = given;
try {
  if (given) sessionStorage.setItem(KEPT, given);
  else key = sessionStorage.getItem(KEPT);
} catch {
  // No storage in this browser: the link has to be opened again after a reload.
}
if (given) history.replaceState(null, "", location.pathname + location.search);
addEventListener("hashchange", () => location.reload()); // another link, pasted into this tab
if (!key) document.querySelector(".ended").textContent = "Open the link that gpumon web printed, with its key.";
const terminal = document.getElementById("terminal");
terminal.dataset.sessionWebsocketUrl = new URL(`ws/${encodeURIComponent(key || "none")}`, location.href).href.replace(/^http/, "ws");
const size = Number(new URLSearchParams(location.search).get("fontsize"));
if (size >= 6 && size <= 40) terminal.dataset.fontSize = size;
// Keys are for the screen at once, without a click into it.
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
