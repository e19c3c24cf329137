"""Natural English for prompts: plain sentences of many subjects, and common short words that most tokenizers hold as one token.

Random token ids would flatter speculative decoding and unbalance the experts of a mixture; text that reads like text does neither.
"""

SENTENCES = (
    "The ferry left the harbour a little after six, when the fog had already lifted from the far shore.",
    "Most of the old maps in the library were drawn by hand and coloured by people whose names nobody wrote down.",
    "A good bread dough needs time more than it needs strength, and the cold of a cellar gives it that time.",
    "When the river rises in spring, the lower fields stand under water for two weeks and the geese come back.",
    "The committee agreed that the bridge should be repaired before winter, but it did not agree on who would pay.",
    "Copper carries heat so well that the handle of such a pan must be made of something else.",
    "Her first experiment failed because the lamp had warmed the sample before the measurement began.",
    "In a small orchestra every player can hear all the others, which is both a comfort and a danger.",
    "The night train stops at the border for an hour while the engines are changed and the papers are read.",
    "Bees find their way home by the sun, and on cloudy days by the pattern of light that the clouds let through.",
    "The museum keeps its oldest clocks in one room, and at noon the visitors stop talking to listen.",
    "A theory that explains everything that could happen does not explain why this happened instead.",
    "After the storm the power was out for three days, and the neighbours cooked together in the yard.",
    "The engineer drew the valve from memory and marked the two places where it always leaked.",
    "Good questions are rarer than good answers, since an answer only has to be found once.",
    "The harvest was late that year, and the price of grain rose in every town along the coast.",
    "He counted the steps of the tower twice and got a different number each time.",
    "A language without a word for blue can still tell one shade of the sea from another.",
    "The court asked for the original letter, but only a copy of a copy had survived.",
    "Glass flows so slowly that the thick edge of an old window is not a sign of its age.",
    "The doctor listened for a long time before she wrote anything down.",
    "Every evening the lamplighter walked the same streets in the same order, whatever the weather.",
    "The first version of the program was fast and wrong, and the second one was right and slow.",
    "Salt was once worth so much that whole cities were built where it came out of the ground.",
    "The children built a dam of stones and mud, and by the evening the stream had found a way around it.",
    "A ship's carpenter could read the sound of the hull and hear which plank would give way first.",
    "The vote was close enough that the three people who had stayed at home talked about it for years.",
    "When two mirrors face each other, the images grow darker with every reflection because no mirror is perfect.",
    "The village had one telephone, and the woman who owned the shop knew everyone's news before they did.",
    "An index is a promise that the thing you are looking for will not have to be looked for twice.",
    "The glacier has lost a third of its length since the first photograph was taken from the same rock.",
    "A careful gardener plants for the tree's shade in thirty years and not for its flowers next spring.",
    "The message arrived in the wrong order, and for one hour the whole office believed the opposite of the truth.",
    "Wool keeps its warmth when it is wet, which is why sailors wore it long after other cloth was cheaper.",
    "The teacher drew a line on the board and asked how anyone could be sure that it was straight.",
    "Between the two towns lies a forest in which the road turns so often that strangers think they are lost.",
    "The price of a promise is paid on the day when keeping it is no longer convenient.",
    "A drum tuned on a dry morning will sound lower by the time the evening mist comes up.",
    "The astronomer threw away one night in four because the air above the mountain would not hold still.",
    "Nobody remembered who had planted the apple tree, but everyone knew when its fruit was ripe.",
)

REQUEST = "Please go on with this text in the same manner, at length, and do not stop early."

WORDS = tuple(
    (  # noqa: SIM905 - a list of words reads as text
        "time year people way day man world life hand part child eye place work week case point number group problem fact water "
        "room money story night home side head house service friend power hour game line end law car city name team minute body "
        "level door art war history party result change morning reason moment air force road book word music ground form light"
    ).split()
)
