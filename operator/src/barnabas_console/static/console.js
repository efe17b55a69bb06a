// Refreshes lists, bounds the rows of a tail, and ends a tail whose tab is hidden. htmx does the rest.
(function () {
  "use strict";
  var REFRESH_MS = 10000;
  var ROWS_MAX = 500;

  setInterval(function () {
    if (!document.hidden && !document.activeElement.closest("#list")) {
      htmx.trigger(document.body, "refresh");
    }
  }, REFRESH_MS);

  document.addEventListener("htmx:sseMessage", function () {
    var rows = document.querySelectorAll("#rows > tr");
    for (var i = 0; i < rows.length - ROWS_MAX; i++) {
      rows[i].remove();
    }
  });

  document.addEventListener("visibilitychange", function () {
    var tail = document.querySelector("[data-follows]");
    if (!tail) {
      return;
    }
    if (document.hidden) {
      tail.remove();
      document.body.setAttribute("data-slept", "");
    }
  });

  document.addEventListener("visibilitychange", function () {
    if (!document.hidden && document.body.hasAttribute("data-slept")) {
      location.reload();
    }
  });
})();
