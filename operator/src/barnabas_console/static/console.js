// Counts the age of a page, refreshes it, says why it cannot, and ends a tail whose tab is hidden. htmx does the rest.
(function () {
  "use strict";
  var REFRESH_MS = 10000;
  var ROWS_MAX = 500;
  var scrolled = [];
  var source = null;
  var create = htmx.createEventSource;

  // A browser opens lost events again by itself, which would search from the beginning and show rows twice.
  htmx.createEventSource = function (address) {
    source = create(address);
    source.addEventListener("error", function (event) {
      event.stopImmediatePropagation();
      end("the connection to the console has ended; load the page again");
    });
    return source;
  };

  function end(why) {
    source.close();
    document.getElementById("stop").hidden = true;
    document.getElementById("progress").append("; " + why);
  }

  function say(text) {
    document.getElementById("trouble").textContent = text;
  }

  function wide() {
    return Array.from(document.querySelectorAll("#list .wide"));
  }

  setInterval(function () {
    var focus = document.activeElement;
    if (!document.hidden && !(focus && focus.closest("#list"))) {
      htmx.trigger(document.body, "refresh");
    }
  }, REFRESH_MS);

  setInterval(function () {
    var age = document.getElementById("age");
    if (age) {
      age.since = age.since || Date.now() - 1000 * age.dataset.age;
      age.textContent = " · " + Math.round((Date.now() - age.since) / 1000) + " s ago";
    }
  }, 1000);

  document.addEventListener("htmx:beforeSwap", function () {
    scrolled = wide().map(function (each) { return each.scrollLeft; });
  });

  document.addEventListener("htmx:afterSwap", function () {
    say("");
    wide().forEach(function (each, i) { each.scrollLeft = scrolled[i]; });
  });

  document.addEventListener("htmx:responseError", function (event) {
    var page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    var problem = page.querySelector("main .problem:not(#trouble)");
    say("These figures are old: " + (problem ? problem.textContent : "the console has no page"));
  });

  document.addEventListener("htmx:sendError", function () {
    say("These figures are old: the console does not answer");
  });

  document.addEventListener("htmx:sseMessage", function () {
    var rows = document.querySelectorAll("#rows > tr");
    for (var i = 0; i < rows.length - ROWS_MAX; i++) {
      rows[i].remove();
    }
  });

  document.addEventListener("htmx:sseClose", function () {
    document.getElementById("stop").hidden = true;
  });

  document.addEventListener("click", function (event) {
    if (event.target.id === "stop") {
      end("stopped");
    }
  });

  document.addEventListener("visibilitychange", function () {
    if (!document.querySelector("[data-follows]")) {
      return;
    }
    if (document.hidden) {
      source.close();
    } else {
      location.reload();
    }
  });
})();
