// Searches the list as you type, and follows a running campaign.
"use strict";

const search = document.getElementById("search");
if (search) {
  const rows = [...document.querySelectorAll("#campaigns tbody tr")];
  const found = document.getElementById("found");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    found.textContent = `${count} shown`;
  };
  search.addEventListener("input", () => {
    show();
    const address = new URL(location);
    if (search.value) address.searchParams.set("q", search.value);
    else address.searchParams.delete("q");
    history.replaceState(null, "", address);
  });
  search.value = new URL(location).searchParams.get("q") ?? search.value;
  show();
}

const live = document.querySelector("[data-follow]");
if (live) {
  const follow = async () => {
    const answer = await fetch(live.dataset.follow);
    if (answer.ok) live.innerHTML = await answer.text();
    if (answer.headers.get("X-Running") === "yes") setTimeout(follow, 1000);
    else location.reload();
  };
  setTimeout(follow, 1000);
}
